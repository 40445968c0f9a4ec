"""What an audit states of one sample (spread, regions, neighbors, groups), and what 20 further samples show of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from docs.figures.believe.peers import compare, embed
from glle_engine.audit.audit import audit
from glle_engine.audit.groups import compare_groups, groups_apart
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity, generalized_procrustes, moments, root_trace
from glle_engine.linalg.rank_correlation import rank_correlation
from glle_engine.reliability.alignment import Regions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from docs.figures.believe.distributions import Distribution

SAMPLES = 20
NEIGHBORS = 15
BINS = np.linspace(0, 1, 11)
Row = dict[str, Any]


def measure(distribution: Distribution, method: str, *, with_peers: bool = False) -> Row:
    """Return what an audit states of a map by `method`, and what maps of 20 further samples show.

    Some points of the audited sample, the probes, are also part of each further sample, so that their positions can be
    compared. They are few, because a map varies less the more of its points stay. With `with_peers`, `row["peers"]` has
    the figures of other tools (`docs.figures.believe.peers`).
    """
    base = distribution.sample(np.random.default_rng(0), distribution.n)
    n = len(base)
    probes = min(100, max(20, n // 6))
    mean, scale = base.mean(axis=0), np.where(base.std(axis=0) > 0, base.std(axis=0), 1)
    labels = None if distribution.label is None else distribution.label(np.random.default_rng(0), n)
    started = time.process_time()
    X = (base - mean) / scale
    audited = audit(X, method=method, labels=labels, score_neighbors=NEIGHBORS)
    spent = time.process_time() - started
    maps, near, apart, member = [], [], [], []
    for number in range(1, SAMPLES + 1):
        others = distribution.sample(np.random.default_rng(1000 + number), n)[: n - probes]
        Y = embed((np.concatenate([base[:probes], others]) - mean) / scale, method)
        maps.append(_normalize(Y[:probes]))
        nearest = kneighbors(np.ascontiguousarray(Y), NEIGHBORS)[0][:probes]
        near.append((nearest[:, :, None] == np.arange(probes)).any(axis=1))
        if labels is not None and distribution.label is not None and audited.groups is not None:
            other_labels = distribution.label(np.random.default_rng(1000 + number), n)[: n - probes]
            names, classes = np.unique(np.concatenate([labels[:probes], other_labels]), return_inverse=True)
            if names.tolist() == audited.groups.names.tolist():
                groups = compare_groups(
                    names, classes, kneighbors(Y, NEIGHBORS)[0][None], groups_apart(Y, classes)[None]
                )
                apart.append(groups.apart)
                member.append(groups.member_probability[:probes])
    assert audited.spread is not None
    assert audited.neighbors is not None
    probed = audited.embedding[:probes]
    size = float(np.sqrt(((probed - probed.mean(axis=0)) ** 2).sum(axis=1).mean()))
    places = generalized_procrustes(np.array(maps), (probed - probed.mean(axis=0)) / size)
    spread, halves = (root_trace(moments(stack)[1]) for stack in (places, places[::2]))
    agreement = rank_correlation(halves, root_trace(moments(places[1::2])[1]))
    row: Row = {
        "distribution": distribution.name,
        "method": method,
        "n": n,
        "noise": distribution.is_noise,
        "beyond": audited.beyond_chance,
        "remains": audited.remains,
        "remains found": float(np.median([1 - disparity(a, b) for a, b in zip(maps[::2], maps[1::2], strict=True)])),
        "ratio": float(np.median(audited.spread[:probes] / size / spread)),
        "level": audited.level,
        "rank": rank_correlation(audited.spread[:probes], spread),
        "ceiling": float(np.sqrt(max(2 * agreement / (1 + agreement), 0.0))),
        "seconds": spent,
        "notes": [note.code for note in audited.notes],
    }
    for name, regions in audited.regions.items():
        of_probes = Regions(probed, regions.half_axes[:probes], regions.levels, regions.radii)
        new = probed.mean(axis=0) + size * (places if name == "new sample" else places.mean(axis=0)[None])
        for level in regions.levels:
            inside = [float(of_probes.contains(place, level).mean()) for place in new]
            row[f"{name} {level}"] = float(np.mean(inside))
            row[f"{name} {level}, lowest tenth"] = float(np.quantile(inside, 0.1))
    others = ~np.eye(probes, dtype=bool)
    stated = audited.neighbors[:probes][:, :probes].toarray()[others]
    row["neighbors"] = _calibration(stated, np.mean(near, axis=0)[others])
    if apart and audited.groups is not None:
        pairs = ~np.eye(len(audited.groups.names), dtype=bool)
        row["apart"] = _calibration(audited.groups.apart[pairs], np.mean(apart, axis=0)[pairs])
        row["member"] = _calibration(audited.groups.member_probability[:probes], np.mean(member, axis=0))
    if with_peers:
        row["peers"] = compare(X, method, audited, places, spent)
    return row


def _normalize(Y: NDArray[np.float64]) -> NDArray[np.float64]:
    centered = Y - Y.mean(axis=0)
    return np.asarray(centered / np.sqrt((centered**2).sum(axis=1).mean()))


def _calibration(stated: NDArray[np.float64], observed: NDArray[np.float64]) -> list[list[float]]:
    """Return (count, sum of stated, sum of observed) for each tenth of the range of stated probabilities.

    Probabilities of 0 are left out.
    """
    tenth = np.clip(np.digitize(stated, BINS) - 1, 0, 9)
    kept = stated > 0
    return [
        [float((kept & (tenth == b)).sum()), *(float(of[kept & (tenth == b)].sum()) for of in (stated, observed))]
        for b in range(10)
    ]
