"""The four answers of an audit of one sample, and the same answers by fresh samples.

    python -m docs.figures.believe.answers --methods pca lle --keep out/answers.jsonl

A fresh sample has half as many points. It is embedded, and the points of the audited sample are placed in its map, so
that the functions of the audit measure what a user would find in a new study.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from docs.figures.believe.fresh import FRESH
from docs.figures.methods.tables import table
from glle_engine.audit.answers import arrangement, islands_of_samples, neighborhoods, shape
from glle_engine.audit.audit import audit
from glle_engine.audit.islands import isolated
from glle_engine.audit.sources import quick_spec
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods.registry import method as method_of
from glle_engine.reliability.refits import MethodEmbedder
from glle_engine.reliability.resamples import SEPARATE, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs.figures.believe.laws import Law

    Row = dict[str, Any]

PAIRS = 4
NEIGHBORS = 15
MISLEADS = {"islands": 0.7, "arrangement": 0.4, "shape": 0.4, "layout": 0.2, "neighbors": 0.15}
"""A statement misleads if it trusts a thing of which fresh samples show less than this share."""

PAGE = Path(__file__).parents[2] / "explanation" / "believe.md"


def measure(law: Law, name: str) -> Row:
    """Return what an audit states of one sample, and what fresh samples show."""
    base = np.asarray(law.sample(np.random.default_rng(0), law.n), np.float64)
    mean, scale = base.mean(axis=0), np.where(base.std(axis=0) > 0, base.std(axis=0), 1)
    X = (base - mean) / scale
    started = time.process_time()
    found = audit(X, method=name, n_neighbors=NEIGHBORS, threads=1)
    spent = time.process_time() - started
    method = method_of(name)
    pictures = []
    for number in range(2 * PAIRS):
        fresh = (np.asarray(law.sample(np.random.default_rng(1000 + number), law.n // 2)) - mean) / scale
        embedder = MethodEmbedder(np.concatenate([fresh, X]), method, quick_spec(method, method.spec()))
        rows = np.arange(len(fresh) + len(X))
        sample = Sample(SEPARATE, number, rows[: len(fresh)], rows[len(fresh) :])
        pictures.append(embedder(sample, lambda *_: None)[len(fresh) :])
    places = np.array(pictures)
    near = np.array([kneighbors(np.ascontiguousarray(Y), NEIGHBORS)[0] for Y in places])
    islands = islands_of_samples(found.islands, np.array([isolated(Y, found.island) for Y in places]))
    of = {
        "islands": islands,
        "arrangement": arrangement(places, found.island),
        "neighborhoods": neighborhoods(near, found.island)[0],
        "shape": shape(places, found.island),
    }
    remains = float(np.mean([1 - disparity(found.embedding, Y) for Y in places]))
    shown = {key: None if answer is None else answer.share for key, answer in of.items()} | {"remains": remains}
    stays = found.islands.stays
    truth = shown | {"layout": remains, "neighbors": shown["neighborhoods"]}
    if stays.any() and islands.in_samples is not None:
        truth["islands"] = float(islands.in_samples[stays].mean())
    wrong = [thing for thing in found.statement.trusted if (truth[thing] or 0) < MISLEADS[thing]]
    stated = {key: getattr(getattr(found, key), "share", None) for key in of} | {"remains": found.remains}
    return {
        "law": law.name, "method": name, "n": law.n, "noise": law.is_noise, "beyond": found.beyond_chance,
        "level": found.level, "verdict": found.verdict, "stated": stated, "found": shown,
        "trusted": found.statement.trusted, "wrong": wrong, "pairs": found.pairs, "seconds": spent,
        "contradicts": sorted(set(found.statement.trusted) & set(found.statement.distrusted)),
    }  # fmt: skip


def summary(rows: list[Row]) -> str:
    """Return the table of goals, a column for each method."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells: dict[str, list[str]] = {}
    for name in methods:
        for figure, value in _figures([row for row in rows if row["method"] == name]):
            cells.setdefault(figure, []).append(value)
    return table(["figure", *methods], [[figure, *values] for figure, values in cells.items()])


def _figures(rows: list[Row]) -> Iterator[tuple[str, str]]:
    """Yield the figures of one method."""
    noise, structure = ([row for row in rows if row["noise"] is flag] for flag in (True, False))
    yield "noise called structure", f"{sum(row['beyond'] is True for row in noise)} of {len(noise)}"
    yield "structure seen", f"{sum(row['beyond'] is True for row in structure)} of {len(structure)}"
    for key in ("islands", "arrangement", "neighborhoods", "shape", "remains"):
        both = np.array(
            [
                (row["stated"][key], row["found"][key])
                for row in structure
                if None not in (row["stated"][key], row["found"][key])
            ]
        ).reshape(-1, 2)
        error = abs(both[:, 0] - both[:, 1]).mean() if len(both) else np.nan
        is_varied = len(both) > 2 and (np.ptp(both, axis=0) > 0).all()
        correlation = f"{np.corrcoef(both.T)[0, 1]:.2f}" if is_varied else "-"
        yield f"{key}: error, correlation (distributions)", f"{error:.2f}, {correlation} ({len(both)})"
        if key == "remains":
            yield "remains: overstated by .2", f"{int((both[:, 0] - both[:, 1] > 0.2).sum())} of {len(both)}"
    yield "statements that mislead", f"{sum(bool(row['wrong']) or _trusts_noise(row) for row in rows)} of {len(rows)}"
    yield "statements that contradict themselves", f"{sum(bool(row['contradicts']) for row in rows)} of {len(rows)}"
    yield "processor seconds, median", f"{np.median([row['seconds'] for row in rows]):.1f}"


def _trusts_noise(row: Row) -> bool:
    return bool(row["noise"] and row["trusted"])


def main() -> None:
    """Measure the distributions that are not kept yet, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.believe.answers", description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["pca", "lle", "umap", "t-sne"])
    parser.add_argument("--keep", type=Path, default=Path("out/answers.jsonl"))
    options = parser.parse_args()
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    lines = options.keep.read_text(encoding="utf-8").splitlines() if options.keep.exists() else []
    rows: list[Row] = [json.loads(line) for line in lines]
    kept = {(row["law"], row["method"]) for row in rows}
    for name in options.methods:
        for law in FRESH:
            if (law.name, name) in kept:
                continue
            rows.append(measure(law, name))
            with options.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(summary(rows))


if __name__ == "__main__":
    main()
