"""The map that `glle.compare` names for each question, beside the maps that the truth names.

    python -m docs.figures.believe.choice --maps out/choice     # maps of fresh samples, an hour
    python -m docs.figures.believe.choice --maps out/choice --choose out/choice.jsonl --write

Each candidate embeds two fresh samples of a distribution with known truth. Its true score for neighbors is the share of
the map's ten neighbors that are near in the coordinates without noise; for the layout the rank correlation of its
distances with the true distances; for groups the adjusted Rand index of the map's islands with the true groups.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import adjusted_rand_score

from docs.figures.believe.truths import TRUTHS
from glle_engine.audit.islands import find_islands
from glle_engine.base.errors import GlleError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.registry import method as method_of

if TYPE_CHECKING:
    from docs.figures.believe.laws import Array
    from docs.figures.believe.truths import Points, Truth

SAMPLES = 2
NEIGHBORS = 10
MAX_ROWS = 600  # points of a map among which distances are compared
MIN_ISLANDS = 0.5  # adjusted Rand index from which on a map shows the groups

CANDIDATES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("pca", "pca", {}),
    ("t-sne 10", "t-sne", {"perplexity": 10.0}),
    ("t-sne 30", "t-sne", {"perplexity": 30.0}),
    ("t-sne 60", "t-sne", {"perplexity": 60.0}),
    ("umap 5", "umap", {"n_neighbors": 5}),
    ("umap 15", "umap", {"n_neighbors": 15}),
    ("umap 50", "umap", {"n_neighbors": 50}),
    ("isomap", "isomap", {}),
    ("glle", "glle", {}),
)
"""Label, method, parameters."""


def fresh_sample(truth: Truth, number: int) -> Points:
    """Return a sample that no choice has seen."""
    return truth.draw(np.random.default_rng(9_000 + number), truth.n)


def make_maps(folder: Path) -> None:
    """Embed the fresh samples by each candidate; a map that exists stays, and a refusal is an empty map."""
    folder.mkdir(parents=True, exist_ok=True)
    for truth in sorted(TRUTHS, key=lambda truth: truth.n):
        for number in range(SAMPLES if not truth.is_noise else 0):
            X = np.ascontiguousarray(fresh_sample(truth, number).X)
            for label, name, parameters in CANDIDATES:
                path = folder / f"{truth.name}, {label}, {number}.npy".replace("/", "-")
                if path.exists():
                    continue
                method = method_of(name)
                try:
                    Y = method.embed(X, method.spec.from_dict(parameters)).Y
                except GlleError:
                    Y = np.empty((0, 2))
                np.save(path, Y.astype(np.float32))


def true_scores(points: Points, Y: Array) -> dict[str, float | None]:
    """Return the true score of a map of these points for each question; None for groups without groups."""
    rng = np.random.default_rng(0)
    jitter = 1e-9 * points.clean.std() * rng.standard_normal(points.clean.shape)  # repeated rows have no distances
    near = kneighbors(np.ascontiguousarray(points.clean + jitter), NEIGHBORS)[0]
    shown = kneighbors(np.ascontiguousarray(Y, np.float64), NEIGHBORS)[0]
    share = float((near[:, :, None] == shown[:, None, :]).any(axis=2).mean())
    by_chance = NEIGHBORS / (len(Y) - 1)
    rows = rng.permutation(len(Y))[:MAX_ROWS]
    truth = points.distances()[np.ix_(rows, rows)]
    found = np.linalg.norm(Y[rows, None] - Y[None, rows], axis=2)
    upper = np.triu_indices(len(rows), 1)
    groups = None if points.group is None else float(adjusted_rand_score(points.group, find_islands(Y)))
    return {
        "neighbors": (share - by_chance) / (1 - by_chance),
        "layout": float(spearmanr(truth[upper], found[upper]).statistic),
        "groups": groups,
    }


def truths_of(truth: Truth, folder: Path) -> dict[str, dict[str, float | None]]:
    """Return the true scores of each candidate that embeds both fresh samples, means over these."""
    scores: dict[str, dict[str, float | None]] = {}
    samples = [fresh_sample(truth, number) for number in range(SAMPLES)]
    for label, *_ in CANDIDATES:
        maps = [np.load(folder / f"{truth.name}, {label}, {number}.npy") for number in range(SAMPLES)]
        if min(len(Y) for Y in maps):
            of = [true_scores(points, Y.astype(np.float64)) for points, Y in zip(samples, maps, strict=True)]
            scores[label] = {
                question: None if of[0][question] is None else float(np.mean([each[question] for each in of]))
                for question in of[0]
            }
    return scores


def main() -> None:
    """Make the maps of fresh samples."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.believe.choice", description=__doc__)
    parser.add_argument("--maps", type=Path, default=Path("out/choice"))
    options = parser.parse_args()
    make_maps(options.maps)


if __name__ == "__main__":
    main()
