"""Conclusion of an audit: what a reader can take from a map, and the statement that tells it to the user.

The map is compared with the data, and, if its method is known, also with the method's maps of random halves of the
data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from glle_engine.audit.agreement import shared, standard_error
from glle_engine.audit.answers import (
    arrangement,
    disturbed_by_data,
    disturbed_by_samples,
    neighborhoods,
    shape,
)
from glle_engine.audit.groups import compare_groups
from glle_engine.audit.islands import islands_of_samples
from glle_engine.audit.result import Audit
from glle_engine.audit.statement import state
from glle_engine.base.progress import blocks
from glle_engine.linalg.procrustes import disparity, root_trace
from glle_engine.reliability.alignment import Alignment, Regions, calibrated_regions, normalize, normalize_all
from glle_engine.reliability.thresholds import FOREIGN, FOREIGN_GAP, MIN_KEPT

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from glle_engine.audit.audited_map import AuditedMap
    from glle_engine.audit.halves import Halves
    from glle_engine.audit.statement import Facts

_BLOCK_ENTRIES = 1 << 16  # neighbors that a thread sorts at a time, so that they stay in the cache
MIN_REGION_PAIRS = 4  # calibration of regions holds out a fourth of the pairs of halves at a time, at least one pair
# Two points that are neighbors in a share f of the maps of random halves are neighbors in another sample with the
# probability KEPT * f**KEPT_POWER. Both numbers were measured on 45 distributions (docs/explanation/believe.md).
KEPT, KEPT_POWER = 0.9, 1.1


def conclude_from_data(audited: AuditedMap) -> Audit:
    """Return the audit of coordinates that are compared only with the data, not with maps of halves of the data."""
    points, island = audited.points, audited.facts.islands.of_points
    k = min(audited.options.score_neighbors, len(points) // 5)
    disturbed = disturbed_by_data(audited.embedding, points, k, island)
    return _audit(audited, replace(audited.facts, disturbed=disturbed))


def conclude_from_halves(audited: AuditedMap, halves: Halves) -> tuple[Audit, Facts]:
    """Compare a map with the maps of halves of the data; return the audit, and the facts on which its verdict rests.

    If the coordinates to audit do not look like a map of the method, they are compared only with the data. Raises
    `InvalidParameterError` if fewer than two pairs of halves could be embedded.
    """
    half_maps = halves.stacked()
    embedding, rows = audited.embedding, audited.rows
    neighbors = halves.neighbors
    if audited.is_given and (foreign := _foreign(neighbors[rows], half_maps.near[:, rows])):
        audited = replace(audited, facts=replace(audited.facts, foreign=foreign))
        return conclude_from_data(audited), audited.facts
    answered, island = halves.answered, audited.facts.islands.of_points
    places = half_maps.places[:, answered]
    shares = common_share(places)
    shares_with_map = np.array([1 - disparity(embedding[answered], Y) for Y in places])
    probability = _neighbor_probability(half_maps.near, halves.threads)
    of_neighbors, of_points = neighborhoods(half_maps.near, island, rows)
    groups = None
    if audited.groups is not None and half_maps.apart is not None:
        groups = compare_groups(*audited.groups, half_maps.near, half_maps.apart)
    facts = replace(
        audited.facts,
        islands=islands_of_samples(audited.facts.islands, half_maps.isolated, half_maps.isolated_inside),
        remains=min(float(shares.mean()), float(shares_with_map.mean())),
        arrangement=None if audited.source.is_placed_by_chance else arrangement(places, island[answered]),
        neighborhoods=of_neighbors,
        shape=shape(np.array(halves.shapes), island[answered]),
        disturbed=disturbed_by_samples(embedding, neighbors, probability, half_maps.squeeze, island, halves.is_far),
        groups="" if groups is None else groups.statement(),
    )
    normalized, _, size = normalize(embedding)
    aligned = Alignment.from_maps(normalize_all(half_maps.places), normalized)
    audit = _audit(
        audited,
        facts,
        remains_error=standard_error(shares),
        neighborhood=of_points,
        dimension=audited.dimension,
        spread=size * root_trace(aligned.covariance),
        stability=_stability(probability, neighbors),
        regions=_regions(aligned, embedding, size),
        neighbors=probability,
        groups=groups,
        chance=audited.chance,
        pairs=len(half_maps.places) // 2,
        rows=rows,
    )
    return audit, facts


def _audit(audited: AuditedMap, facts: Facts, **findings: Any) -> Audit:
    """Return the audit whose statement follows from the facts; `findings` are fields of `Audit` beyond the facts."""
    assert facts.disturbed is not None
    statement = state(facts)
    return Audit(
        verdict=statement.text,
        level=statement.level,
        statement=statement,
        beyond_chance=_is_beyond(facts),
        embedding=audited.embedding,
        remains=facts.remains,
        islands=facts.islands,
        arrangement=facts.arrangement,
        neighborhoods=facts.neighborhoods,
        shape=facts.shape,
        disturbed=facts.disturbed,
        notes=audited.notes,
        **findings,
    )


def common_share(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Procrustes R^2 (m,) of each pair of maps of two separate halves of the data.

    Maps 2 j and 2 j + 1 of `places` (2 m, n, p) are a pair.
    """
    return np.array([1 - disparity(a, b) for a, b in zip(places[::2], places[1::2], strict=True)])


def _is_beyond(facts: Facts) -> bool | None:
    """Return whether the data have structure and the map shows some of it; None if that cannot be decided."""
    if facts.has_structure is None:
        return None
    return facts.has_structure and facts.fidelity.kept - facts.fidelity.by_chance >= MIN_KEPT


def _foreign(neighbors: NDArray[Any], near: NDArray[Any]) -> tuple[float, float] | None:
    """Return two shares of common neighbors if coordinates do not look like a map of the method; else None.

    `neighbors` (r, k) are neighbors in the coordinates, `near` (m, r, k) neighbors in the method's maps of m halves of
    the data. The first share is what the coordinates have in common with the map of a half, the second what the maps of
    two halves have in common. For a map of all points by the method, the first share would be the larger one, because
    this map is made of the points of both halves.
    """
    by_chance = neighbors.shape[1] / (len(neighbors) - 1)
    with_halves = float(np.mean([shared(neighbors, each).mean() for each in near]))
    of_halves = float(np.mean([shared(a, b).mean() for a, b in zip(near[::2], near[1::2], strict=True)]))
    is_foreign = with_halves - by_chance < FOREIGN * (of_halves - by_chance) and of_halves - with_halves >= FOREIGN_GAP
    return (with_halves, of_halves) if is_foreign else None


def _regions(aligned: Alignment, embedding: NDArray[np.float64], size: float) -> dict[str, Regions]:
    """Return confidence regions around the points of an embedding (n, p), as `Audit.regions` has them.

    The result is empty if there are too few pairs of separate halves of the data to calibrate the regions. `aligned`
    has the maps of the halves; its unit of length is the `size` of the embedding.
    """
    pairs, p = len(aligned.embeddings) // 2, embedding.shape[1]
    # Calibration holds out one pair of halves, and p other pairs must be left to span the region.
    if pairs < max(MIN_REGION_PAIRS, p + 1):
        return {}
    around = calibrated_regions(aligned, together=2)
    regions = Regions(embedding, size * around.half_axes, around.levels, around.radii)
    return {"mean": regions, "new sample": regions.of_new_sample()}


def _neighbor_probability(near: NDArray[np.int32], threads: Executor | None) -> csr_array:
    """Return the probability (n, n) that j is among the k nearest neighbors of i in the map of another sample.

    `near` (m, n, k) are the neighbors in m maps of random halves of the data. If j is a neighbor in a share f of these
    maps, the probability is .9 f^1.1, which is below f because different halves of one data set share points, and other
    samples do not. Both constants were measured on 45 distributions (docs/explanation/believe.md).
    """
    maps, n, k = near.shape
    of_count = KEPT * (np.arange(maps + 1) / maps) ** KEPT_POWER

    def count(rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        ordered = np.sort(near[:, rows].transpose(1, 0, 2).reshape(-1, maps * k), axis=1)
        is_first = np.ones(ordered.shape, bool)
        np.not_equal(ordered[:, 1:], ordered[:, :-1], out=is_first[:, 1:])
        counts = np.diff(np.flatnonzero(is_first), append=ordered.size)
        return is_first.sum(axis=1), ordered[is_first], of_count[counts]

    rows = list(blocks(n, max(1, _BLOCK_ENTRIES // (maps * k)), "neighbors"))
    sizes, columns, data = map(
        np.concatenate, zip(*(map if threads is None else threads.map)(count, rows), strict=True)
    )
    return csr_array((data, columns, np.append(0, np.cumsum(sizes))), shape=(n, n))


def _stability(probability: csr_array, neighbors: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean probability (n,) that a point's neighbors (n, k) are neighbors in another sample's map."""
    points = np.repeat(np.arange(len(neighbors)), neighbors.shape[1])
    of_neighbors = np.asarray(probability[points, neighbors.ravel()]).reshape(neighbors.shape)
    return np.asarray(of_neighbors.mean(axis=1))
