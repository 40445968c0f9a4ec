"""Does `glle.compare` name the right map? Its choices, and fixed choices, against scores by the true coordinates.

    python -m docs.figures.believe.choice --maps out/choice     # maps of fresh samples, an hour
    python -m docs.figures.believe.choice --maps out/choice --keep out/choice.jsonl

Each candidate embeds two fresh samples of a distribution with known truth. Its true score for neighbors is the share of
the map's ten neighbors that are near in the coordinates without noise; for the layout the rank correlation of its
distances with the true distances; for groups the adjusted Rand index of the map's islands with the true groups.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import adjusted_rand_score

import glle
from docs.figures.believe.truths import TRUTHS
from docs.figures.methods.tables import table
from glle_engine.audit.islands import find_islands
from glle_engine.base.errors import GlleError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods.registry import method as method_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs.figures.believe.distributions import Array
    from docs.figures.believe.truths import Points, Truth

    Row = dict[str, Any]

SAMPLES = 2
NOISE_SAMPLES = 4
FIXED = ("t-sne 30", "pca", "umap 15")
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
    """Return a sample for the true scores; its seed is not one of those from which `choose` draws."""
    return truth.draw(np.random.default_rng(9_000 + number), truth.n)


def make_maps(folder: Path) -> None:
    """Embed the fresh samples by each candidate, and save the maps in `folder`.

    Maps that exist already are not made again. If a method refuses the data, its map has no points.
    """
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
    """Return how well a map Y (n, 2) shows the "neighbors", "layout" and "groups" of the true coordinates.

    The score for "groups" is None if the data have no groups.
    """
    rng = np.random.default_rng(0)
    jitter = 1e-9 * points.clean.std() * rng.standard_normal(points.clean.shape)  # repeated rows have no distances
    near = kneighbors(np.ascontiguousarray(points.clean + jitter), NEIGHBORS)[0]
    shown = kneighbors(np.ascontiguousarray(Y, np.float64), NEIGHBORS)[0]
    share = float((near[:, :, None] == shown[:, None, :]).any(axis=2).mean())
    by_chance = NEIGHBORS / (len(Y) - 1)
    rows = rng.permutation(len(Y))[:MAX_ROWS]
    truth = points.distances()[np.ix_(rows, rows)]
    distances = np.linalg.norm(Y[rows, None] - Y[None, rows], axis=2)
    upper = np.triu_indices(len(rows), 1)
    groups = None if points.group is None else float(adjusted_rand_score(points.group, find_islands(Y)))
    return {
        "neighbors": (share - by_chance) / (1 - by_chance),
        "layout": float(spearmanr(truth[upper], distances[upper]).statistic),
        "groups": groups,
    }


def truths_of(truth: Truth, folder: Path) -> dict[str, dict[str, float | None]]:
    """Return the mean true scores over the fresh samples, by candidate and question, from the maps in `folder`.

    Candidates that refused one of the samples are left out.
    """
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


def choose(truth: Truth, seed: int) -> Row:
    """Return which map `glle.compare` names for each question on one sample, and which maps simple rules name.

    Simple rules are always the same method, the highest trustworthiness, and a perplexity of n / 100.
    """
    points = truth.draw(np.random.default_rng(seed), truth.n)
    blocks = np.arange(truth.n) // truth.together if truth.together > 1 else None
    methods = {label: (name, parameters) for label, name, parameters in CANDIDATES}
    started = time.process_time()
    comparison = glle.compare(
        np.ascontiguousarray(points.X), methods, blocks=blocks, scores=["trustworthiness"], threads=1
    )
    trusted = {label: row["trustworthiness"] for label, row in comparison.scores.items() if "trustworthiness" in row}
    fixed = {"trustworthiness": max(trusted, key=trusted.__getitem__), "perplexity n/100": _nearest_perplexity(truth.n)}
    return {
        "name": truth.name, "kind": truth.kind, "n": truth.n, "noise": truth.is_noise, "seed": seed,
        "best": comparison.best,
        "as_good": {answer.question: list(answer.as_good) for answer in comparison.choices.answers},
        "sentences": list(comparison.choices.sentences), "fixed": {label: label for label in FIXED} | fixed,
        "levels": {label: audit.level for label, audit in comparison.audits.items()},
        "seconds": time.process_time() - started,
    }  # fmt: skip


def _nearest_perplexity(n: int) -> str:
    return min(("t-sne 10", "t-sne 30", "t-sne 60"), key=lambda label: abs(float(label.split()[1]) - n / 100))


def regrets(rows: list[Row], choice: str | None, question: str) -> list[float]:
    """Return the regret of a choice on each distribution: the best true score less the true score of the chosen map.

    `choice` is the name of a simple rule, or None for the choice of `glle.compare`. Distributions on which nothing is
    chosen are left out, and for "groups" also those whose groups no map shows.
    """
    losses = []
    for row in rows:
        scores = {label: of[question] for label, of in row["truths"].items() if of[question] is not None}
        chosen = row["best"][question] if choice is None else row["fixed"][choice]
        if scores and chosen in scores and (question != "groups" or max(scores.values()) >= MIN_ISLANDS):
            losses.append(max(scores.values()) - scores[chosen])
    return losses


def summary(rows: list[Row]) -> str:
    """Return the Markdown tables of the page: median and 90 % quantile of the regrets, and counts with their goals."""
    structure = [row for row in rows if not row["noise"]]
    lines = []
    for choice in (None, *FIXED, "trustworthiness", "perplexity n/100"):
        cells = []
        for question in ("neighbors", "layout", "groups"):
            values = np.array(regrets(structure, choice, question))
            cells.append(f"{np.median(values):.3f} / {np.quantile(values, 0.9):.3f} ({len(values)})")
        lines.append(["**`compare`**" if choice is None else choice, *cells])
    text = table(["choice", "neighbors", "layout", "groups"], lines)
    shown = [
        row for row in structure if max((of["groups"] or 0 for of in row["truths"].values()), default=0) >= MIN_ISLANDS
    ]
    none = sum(row["best"]["groups"] is None for row in shown)
    named = regrets(structure, None, "groups")
    noise = [row for row in rows if row["noise"]]
    counts = [
        [
            "groups: regret of at most .05 where a map is named",
            "9 of 10",
            f"{sum(each <= 0.05 for each in named)} of {len(named)}",
        ],
        ["groups that some map shows, and none is named", "at most a third", f"{none} of {len(shown)}"],
        [
            "noise for which a map is named",
            "none",
            f"{sum(any(row['best'].values()) for row in noise)} of {len(noise)}",
        ],
    ]
    for default in ("umap 15", "t-sne 30"):
        worse = [
            row["name"] for row in structure
            if row["best"]["neighbors"] and default in row["truths"]
            and row["truths"][default]["neighbors"] - row["truths"][row["best"]["neighbors"]]["neighbors"] > 0.05
        ]  # fmt: skip
        counts.append([f"neighbors: worse than {default} by .05", "none", f"{len(worse)} {', '.join(worse)}".strip()])
    return f"{text}\n\n{table(['count', 'goal', 'found'], counts)}"


def misses(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each choice of `glle.compare` with a regret above .05, and for each map it names for noise."""
    for row in rows:
        if row["noise"]:
            if any(row["best"].values()):
                yield f"{row['name']} (noise): {' '.join(row['sentences'])}"
            continue
        for question, best in row["best"].items():
            scores = {label: of[question] for label, of in row["truths"].items() if of[question] is not None}
            if best in scores and max(scores.values()) - scores[best] > 0.05:
                better = max(scores, key=scores.__getitem__)
                yield f"{row['name']}, {question}: {best} {scores[best]:.2f}, {better} {scores[better]:.2f}"


def main() -> None:
    """Make the maps of fresh samples; with `--keep`, also compare, and print the tables and the misses."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.believe.choice", description=__doc__)
    parser.add_argument("--maps", type=Path, default=Path("out/choice"))
    parser.add_argument("--keep", type=Path, help="JSON lines of the choices; without it only maps are made")
    options = parser.parse_args()
    make_maps(options.maps)
    if options.keep is None:
        return
    lines = options.keep.read_text(encoding="utf-8").splitlines() if options.keep.exists() else []
    rows: list[Row] = [json.loads(line) for line in lines]
    kept = {(row["name"], row["seed"]) for row in rows}
    for truth in sorted(TRUTHS, key=lambda truth: truth.n):
        for seed in range(NOISE_SAMPLES if truth.is_noise else 1):
            if (truth.name, seed) in kept:
                continue
            row = choose(truth, seed) | {"truths": {} if truth.is_noise else truths_of(truth, options.maps)}
            rows.append(row)
            with options.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(summary(rows), *misses(rows), sep="\n")


if __name__ == "__main__":
    main()
