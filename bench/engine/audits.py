"""How many times longer an audit takes than its map alone; the time of an audit includes the map."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data import data_of
from bench.report import at_most, seconds
from glle_engine import fit
from glle_engine.audit.audit import audit, audits
from glle_engine.base.errors import MissingLibraryError
from glle_engine.methods.registry import method as method_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bench.report import Row

CASES = [("umap", "groups", 5_000), ("t-sne", "groups", 2_000), ("glle", "groups", 5_000), ("glle", "cube-3-50", 5_000)]
REPEATS = 3
LAST_MAPS, FIRST_MAPS = 5.0, 2.5  # times of the map until the last and the first statement, at most
LARGE, LARGE_SECONDS = 100_000, 60.0  # points, and seconds beside a map by UMAP
GROUPS, FEATURES = 12, 50


def rows(largest: int) -> Iterator[Row]:
    """Yield the results for audits of up to `largest` points; methods whose libraries are missing are left out."""
    for method, name, n in CASES:
        if n > largest:
            continue
        X = _data(name, n)
        try:
            audit(X[:300], method=method)  # compiles
        except MissingLibraryError:
            continue
        times = np.array([_times(X, method) for _ in range(REPEATS)])
        of_map, first, last = (statistics.median(column) for column in times.T)
        for work, stop, goal in (("audit", 2, LAST_MAPS), ("first statement", 1, FIRST_MAPS)):
            ratio = statistics.median(times[:, stop] / times[:, 0])
            detail = {"map s": of_map, "first s": first, "last s": last}
            yield at_most(f"{work}, {method}, {name}, n = {n:,}", ratio, "x", goal, "the map", **detail)
    if largest >= LARGE:
        X = _data("groups", LARGE)
        try:
            Y = _embed(X, "umap")
        except MissingLibraryError:
            return
        figure = seconds(partial(audit, X, Y, method="umap"))
        yield at_most(f"audit beside the map, umap, groups, n = {LARGE:,}", figure, "s", LARGE_SECONDS)


def _times(X: NDArray[np.float64], method: str) -> tuple[float, float, float]:
    """Return the seconds of a map, of an audit until its first preliminary verdict, and of the whole audit."""
    of_map = seconds(partial(_embed, X, method))
    started = time.perf_counter()
    until = [time.perf_counter() - started for _ in audits(X, method=method)]
    return of_map, until[0], until[-1]


def _embed(X: NDArray[np.float64], method: str) -> NDArray[np.float64]:
    """Embed X with the settings that an audit uses for its maps."""
    if method == "glle":
        return fit(X).embedding
    embedding: Any = method_of(method).embed(X)
    return np.asarray(embedding.Y)


def _data(name: str, n: int) -> NDArray[np.float64]:
    """Return n points of a data set of `bench.data`, or of Gaussian groups in 50 features."""
    return groups(n) if name == "groups" else data_of(name, n)


def groups(n: int) -> NDArray[np.float64]:
    """Return n points (n, 50) of 12 Gaussian groups."""
    random = np.random.default_rng(n)
    centers = 1.2 * random.standard_normal((GROUPS, FEATURES))
    noise = random.standard_normal((n, FEATURES)) * np.linspace(1.2, 0.2, FEATURES)
    return np.asarray(centers[random.integers(0, GROUPS, n)] + noise)
