"""Movement over half-samples against movement over new data: the table of docs/reference/methods.md, on one core.

Some of the n points, the probes, stay, and the m others are drawn again: from the sheet, or without replacement from
the digits and the wines that are not in the probes. Both movements are of the probes, aligned by these alone.

Samples with common probes vary less than new ones: for a statistic that is linear in the sample the variance is m / n
of theirs, and without replacement 1 - f of that, if the m are the fraction f of a finite set. Deviations of replicates
are therefore multiplied by sqrt(n / m) / sqrt(1 - f), an approximation for embeddings.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits, load_wine

from docs.figures.methods.tables import table
from glle_engine import GlleError, manifolds
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import method
from glle_engine.reliability.alignment import rank_correlation
from glle_engine.reliability.movement import movement
from glle_engine.reliability.refits import MethodEmbedder
from glle_engine.reliability.resamples import HALVES, Resamples, resample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

METHODS = ("pca", "isomap", "lle", "glle", "t-sne", "umap")
N, NOISE = 400, 0.01  # of the sheets
HEAD = [
    "method",
    "rho, mean",
    "ratio, range",
    "rho of baseline, mean",
    "neighbors kept: halves, new",
    "apart: halves, new",
]


@dataclass(frozen=True)
class Data:
    """Data whose first points, the probes, stay when the others are drawn again.

    Attributes
    ----------
    name : str
    sample : callable
        (seed) to the points (n, d), the probes first.
    probes : int
    factor : float
        On deviations.
    labels : (n,) int64, optional
        Of the probes.

    """

    name: str
    sample: Callable[[int], NDArray[np.float64]]
    probes: int
    factor: float
    labels: NDArray[np.int64] | None = None


def sheet(name: str) -> Data:
    """Return a sheet with noise, of which a quarter of the points stays."""
    probes = N // 4

    def points(seed: int, n: int) -> NDArray[np.float64]:
        X = manifolds.make(name, n, seed=seed).X
        radius = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        return np.asarray(X + NOISE * radius * np.random.default_rng([seed, 3]).standard_normal(X.shape))

    def sample(seed: int) -> NDArray[np.float64]:
        return points(0, N) if seed == 0 else np.concatenate([points(0, N)[:probes], points(1000 + seed, N - probes)])

    return Data(name, sample, probes, float(np.sqrt(N / (N - probes))))


def finite(name: str, X: NDArray[np.float64], labels: NDArray[np.int64], probes: int, others: int) -> Data:
    """Return a finite set, of which some points stay and some of the others are drawn without replacement."""
    order = np.random.default_rng([0, 7]).permutation(len(X))
    X, labels = X[order], labels[order]
    rest = len(X) - probes

    def sample(seed: int) -> NDArray[np.float64]:
        drawn = probes + np.random.default_rng([seed, 5]).choice(rest, others, replace=False)
        return np.concatenate([X[:probes], X[drawn]])

    factor = float(np.sqrt((probes + others) / others / (1 - others / rest)))
    return Data(name, sample, probes, factor, labels[:probes])


def sets() -> Iterator[Data]:
    """Yield the data."""
    digits, wine = load_digits(), load_wine()
    yield finite("digits", digits.data, digits.target.astype(np.int64), 100, 400)
    scaled = (wine.data - wine.data.mean(axis=0)) / wine.data.std(axis=0)
    yield finite("wine", scaled, wine.target.astype(np.int64), 30, 74)
    for name in ("swiss_roll", "s_curve", "severed_bowl"):
        yield sheet(name)


class Row(NamedTuple):
    """Movement of a method on data, over halves against over new data."""

    data: str
    method: str
    level: str
    rho: float
    ratio: float
    baseline: float
    kept: tuple[float, float]
    apart: tuple[float, float]  # nan without labels


def measure(data: Data, name: str, halves: int, replicates: int) -> Row:
    """Return the row of a method on data."""
    embedder, m = method(name), data.probes
    X = data.sample(0)
    least = {"perplexity": min(30.0, len(X) / 8)} if name == "t-sne" else {}  # a half has 3 times as many points
    spec = embedder.spec(**least)
    reference = embedder.embed(X, spec).Y[:m]
    truths = []
    for j in range(1, replicates + 1):
        again: Any = replace(spec, seed=j) if embedder.random else spec
        try:
            truths.append(embedder.embed(data.sample(j), again).Y[:m])
        except GlleError as error:  # a graph in parts
            print(f"{data.name}, {name}: {error}", file=sys.stderr)
    places = resample(MethodEmbedder(X, embedder, spec), halves).places[:, :m]
    probes = MethodEmbedder(X[:m], embedder, spec)
    found, truth = (
        movement(probes, reference, Resamples(HALVES, each), labels=data.labels) for each in (places, np.array(truths))
    )
    baseline = kneighbors(X, 10)[1].mean(axis=1)[:m]
    apart = [float((each.radius * factor < each.margin).mean()) for each, factor in ((found, 1), (truth, data.factor))]
    return Row(
        data.name, name, f"{found.reliability.level} ({found.reliability.reproducibility:.2f})",
        rank_correlation(found.movement, truth.movement),
        float(np.median(found.movement) / (data.factor * np.median(truth.movement))),
        rank_correlation(baseline, truth.movement),
        (found.figures["pairs_kept"], truth.figures["pairs_kept"]),
        (apart[0], apart[1]) if data.labels is not None else (np.nan, np.nan),
    )  # fmt: skip


def summarize(rows: list[Row]) -> str:
    """Return a table with a line for each method: means, and ranges of the ratio, over the data."""
    lines = []
    for name in dict.fromkeys(row.method for row in rows):
        of = [row for row in rows if row.method == name]
        ratios = [row.ratio for row in of]
        kept, apart = (np.nanmean([getattr(row, each) for row in of], axis=0) for each in ("kept", "apart"))
        cells = [
            f"{np.mean([row.rho for row in of]):.2f}",
            f"{min(ratios):.2f}-{max(ratios):.2f}",
            f"{np.mean([row.baseline for row in of]):.2f}",
            f"{kept[0]:.2f}, {kept[1]:.2f}",
            f"{apart[0]:.2f}, {apart[1]:.2f}",
        ]
        lines.append([name, *(re.sub(r"\b0\.", ".", cell) for cell in cells)])
    return table(HEAD, lines)


def main() -> None:
    """Print a row for each method and data set, and the table of methods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--halves", type=int, default=40)
    parser.add_argument("--replicates", type=int, default=16)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--sets", nargs="+", help="names of the data; default: all")
    options = parser.parse_args()
    rows = []
    started = time.process_time()
    for data in (each for each in sets() if options.sets is None or each.name in options.sets):
        for name in options.methods:
            if all(find_spec(library) for library in method(name).libraries):
                rows.append(measure(data, name, options.halves, options.replicates))
                print(rows[-1], flush=True)
    print(summarize(rows))
    print(f"{time.process_time() - started:.0f} s of processor time", file=sys.stderr)


if __name__ == "__main__":
    main()
