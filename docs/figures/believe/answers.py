"""Compare the four answers of an audit (islands, arrangement, neighborhoods, shape) with maps of fresh samples.

    python -m docs.figures.believe.answers --methods pca lle --keep out/answers.jsonl

An audit estimates from one sample what further samples would show. Here the distribution is known, so that further
samples can be drawn: each has half as many points and is embedded, and the points of the audited sample are placed in
its map. The functions of the audit then measure the answers in these maps. The distributions
(`docs.figures.believe.truths`) were written down before any of them was run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from docs.figures.believe.truths import TRUTHS
from docs.figures.methods.tables import put, table
from glle_engine.audit.answers import arrangement, neighborhoods, shape, shape_shares
from glle_engine.audit.audit import audit
from glle_engine.audit.groups import groups_apart
from glle_engine.audit.halves import island_places
from glle_engine.audit.islands import islands_of_samples, isolated_among
from glle_engine.audit.sources import quick_spec
from glle_engine.base.errors import GlleError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods.registry import method as method_of
from glle_engine.reliability.refits import MethodEmbedder
from glle_engine.reliability.resamples import SEPARATE, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs.figures.believe.distributions import Distribution

    Row = dict[str, Any]

PAIRS = 4
NEIGHBORS = 15
STATED_APART, FOUND_APART = (
    0.875,
    0.7,
)  # a pair of groups is overstated if it is stated apart and found apart less often
RARE = "three groups and one of 1 %"
RARE_SAMPLES = 10
MATCH = 0.8  # share of a rare group on an island, and of the island in the rare group, from which on it is found
MISLEADS = {"islands": 0.7, "arrangement": 0.4, "shape": 0.4, "layout": 0.2, "neighbors": 0.15}
"""A statement misleads if it trusts a thing of which fresh samples show less than this share."""

GOALS = {
    "islands": (0.06, 0.95), "pairs": (0.06, 0.95), "arrangement": (0.12, np.nan), "neighborhoods": (0.06, 0.95),
    "shape": (0.15, 0.85), "remains": (0.1, np.nan),
}  # fmt: skip
"""Error at most, and correlation at least, of what is stated with what is found."""

NAMES = {"pairs": "pairs of groups"}

DISTRIBUTIONS = tuple(truth.distribution() for truth in TRUTHS)
PAGE = Path(__file__).parents[2] / "explanation" / "believe.md"


def measure(distribution: Distribution, name: str) -> Row:
    """Return, for the method `name`, the answers that an audit states and the answers that fresh samples show.

    The members `stated` and `found` of the row have the shares; `wrong` lists statements that mislead.
    """
    base = np.asarray(distribution.sample(np.random.default_rng(0), distribution.n), np.float64)
    mean, scale = base.mean(axis=0), np.where(base.std(axis=0) > 0, base.std(axis=0), 1)
    X = (base - mean) / scale
    method = method_of(name)
    max_perplexity = 0.45 * (distribution.n // 2 - 1)  # perplexity that halves of few points allow
    parameters = {"perplexity": min(30.0, max_perplexity)} if name == "t-sne" else {}
    spec = quick_spec(method, method.spec.from_dict(parameters))
    pictures, islands_shown, apart = list[Any](), list[Any](), list[Any]()
    groups = None if distribution.label is None else distribution.label(np.random.default_rng(0), distribution.n)
    blocks = np.arange(distribution.n) // distribution.together if distribution.together > 1 else None
    started = time.process_time()
    audited = audit(
        X, method=name, parameters=parameters, score_neighbors=NEIGHBORS, blocks=blocks, labels=groups, threads=1
    )
    spent = time.process_time() - started
    for number in range(2 * PAIRS):
        other = distribution.sample(np.random.default_rng(1000 + number), distribution.n // 2)
        fresh = (np.asarray(other) - mean) / scale
        points, rows = np.concatenate([fresh, X]), np.arange(len(fresh) + len(X))
        sample = Sample(SEPARATE, number, rows[: len(fresh)], rows[len(fresh) :])
        picture = MethodEmbedder(points, method, spec)(sample, lambda *_: None)
        pictures.append(picture[len(fresh) :])
        if not method.linear:
            picture = island_places(points, rows >= len(fresh), sample.chosen, picture)
        order = np.random.default_rng(number).permutation(distribution.n)
        is_first = order < distribution.n // 2  # as many points as in a fresh sample
        placed = picture[len(fresh) :]
        islands_shown += [isolated_among(placed, audited.island, of) for of in (is_first, ~is_first)]
        if audited.groups is not None:
            apart += [groups_apart(placed, audited.groups.classes, of) for of in (is_first, ~is_first)]
    places = np.array(pictures)
    near = np.array([kneighbors(np.ascontiguousarray(Y), NEIGHBORS)[0] for Y in places])
    islands = islands_of_samples(audited.islands, np.array(islands_shown))
    of = {
        "islands": islands,
        "arrangement": arrangement(places, audited.island),
        "neighborhoods": neighborhoods(near, audited.island)[0],
        "shape": shape(
            np.array([shape_shares(a, b, audited.island) for a, b in zip(places[::2], places[1::2], strict=True)]),
            audited.island,
        ),
    }
    remains = float(np.mean([1 - disparity(audited.embedding, Y) for Y in places]))
    shown = {key: None if answer is None else answer.share for key, answer in of.items()} | {"remains": remains}
    stays = audited.islands.stays
    truth = shown | {"layout": remains, "neighbors": shown["neighborhoods"]}
    if stays.any() and islands.in_samples is not None:
        truth["islands"] = float(islands.in_samples[stays].mean())
    wrong = [thing for thing in audited.statement.trusted if (truth[thing] or 0) < MISLEADS[thing]]
    stated = {key: getattr(getattr(audited, key), "share", None) for key in of} | {"remains": audited.remains}
    pairs = []
    if audited.groups is not None:
        upper = np.triu_indices(len(audited.groups.names), 1)
        pairs = np.column_stack([audited.groups.apart[upper], np.mean(apart, axis=0)[upper]]).tolist()
    return {
        "distribution": distribution.name, "method": name, "n": distribution.n, "noise": distribution.is_noise,
        "beyond": audited.beyond_chance,
        "level": audited.level, "verdict": audited.verdict, "stated": stated, "found": shown,
        "trusted": audited.statement.trusted, "wrong": wrong, "pairs": pairs, "halves": 2 * audited.pairs,
        "seconds": spent,
        "contradicts": sorted(set(audited.statement.trusted) & set(audited.statement.distrusted)),
    }  # fmt: skip


def summary(rows: list[Row]) -> str:
    """Return the Markdown table of the page: a row for each goal, a column for each method; misses are bold."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figures = [list(_figures([row for row in rows if row["method"] == name])) for name in methods]
    lines = [
        [of[0][0], of[0][1], *(f"**{text}**" if is_miss else text for _, _, text, is_miss in of)]
        for of in zip(*figures, strict=True)
    ]
    return table(["figure", "goal", *methods], lines)


def _figures(rows: list[Row]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the table's rows for one method: name of the figure, goal, value, and whether the value misses the goal."""
    refused = sum("refused" in row for row in rows)
    yield "distributions that the method refuses", "", f"{refused} of {len(rows)}", False
    rows = [row for row in rows if "refused" not in row]
    noise, structure = ([row for row in rows if row["noise"] is flag] for flag in (True, False))
    for figure, goal, of, limit in (
        ("noise called structure", "at most 5 %", [row["beyond"] is True for row in noise], 0.05),
        ("structure not seen", "at most 5 %", [row["beyond"] is not True for row in structure], 0.05),
        ("statements that mislead", "at most 1 %", [bool(row["wrong"]) or _trusts_noise(row) for row in rows], 0.01),
        ("statements that contradict themselves", "none", [bool(row["contradicts"]) for row in rows], 0.0),
    ):
        yield figure, goal, f"{sum(of)} of {len(of)}", sum(of) > limit * len(of)
    for key, (limit, min_correlation) in GOALS.items():
        if key == "pairs":
            stated_and_found = [tuple(pair) for row in structure for pair in row["pairs"]]
        else:
            stated_and_found = [(row["stated"][key], row["found"][key]) for row in structure]
        both = np.array([pair for pair in stated_and_found if None not in pair]).reshape(-1, 2)
        error = float(abs(both[:, 0] - both[:, 1]).mean()) if len(both) else np.nan
        is_varied = len(both) > 2 and (np.ptp(both, axis=0) > 0).all()
        r = float(np.corrcoef(both.T)[0, 1]) if is_varied else np.nan
        text = ", ".join("-" if np.isnan(value) else f"{value:.2f}" for value in (error, r)) + f" ({len(both)})"
        goal = f"{limit:.2f}" if np.isnan(min_correlation) else f"{limit:.2f}, {min_correlation:.2f}"
        yield (
            f"{NAMES.get(key, key)}: error, correlation (number)",
            goal,
            text,
            round(error, 2) > limit or round(r, 2) < min_correlation,
        )
        if key == "pairs":
            over = int(((both[:, 0] >= STATED_APART) & (both[:, 1] < FOUND_APART)).sum())
            yield "pairs of groups: overstated", "", f"{over} of {int((both[:, 0] >= STATED_APART).sum())}", False
        if key == "remains":
            over = int((both[:, 0] - both[:, 1] > 0.2).sum())
            yield "remains: overstated by .2", "at most 3 %", f"{over} of {len(both)}", over > 0.03 * len(both)
    yield "processor seconds, median", "", f"{np.median([row['seconds'] for row in rows]):.1f}", False


def count_rare(name: str) -> int:
    """Return in how many of ten samples a map by the method `name` shows the group of 1 % as an island of its own."""
    truth = next(truth for truth in TRUTHS if truth.name == RARE)
    count = 0
    for number in range(RARE_SAMPLES):
        points = truth.draw(np.random.default_rng(5_000 + number), truth.n)
        assert points.group is not None
        is_rare = points.group == points.group.max()
        islands = audit(points.X, method=name, threads=1).island
        overlaps = (
            ((islands == i) & is_rare).sum() / max((islands == i).sum(), is_rare.sum())
            for i in set(islands[is_rare]) - {-1}
        )
        count += max(overlaps, default=0.0) >= MATCH
    return count


def _trusts_noise(row: Row) -> bool:
    return bool(row["noise"] and row["trusted"])


def main() -> None:
    """Measure the distributions that the file of `--keep` lacks, and write the table into the page."""
    parser = argparse.ArgumentParser(prog="python -m docs.figures.believe.answers", description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["pca", "lle", "umap", "t-sne"])
    parser.add_argument("--keep", type=Path, default=Path("out/answers.jsonl"))
    parser.add_argument("--rare", action="store_true", help="count the samples in which a group of 1 %% is found")
    options = parser.parse_args()
    if options.rare:
        for name in options.methods:
            print(f"{name}: the group of 1 % is an island in {count_rare(name)} of {RARE_SAMPLES} samples")
        return
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    lines = options.keep.read_text(encoding="utf-8").splitlines() if options.keep.exists() else []
    rows: list[Row] = [json.loads(line) for line in lines]
    kept = {(row["distribution"], row["method"]) for row in rows}
    for name in options.methods:
        for distribution in DISTRIBUTIONS:
            if (distribution.name, name) in kept:
                continue
            try:
                rows.append(measure(distribution, name))
            except GlleError as error:  # such as LLE of groups: the graph falls apart
                row = {"distribution": distribution.name, "method": name, "noise": distribution.is_noise}
                rows.append({**row, "refused": str(error)})
            with options.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    put(PAGE, "answers", summary(rows))


if __name__ == "__main__":
    main()
