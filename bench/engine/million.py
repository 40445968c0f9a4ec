"""Time and memory at a million points of 50 features: a fit by landmarks with its draws, and an audit of a map.

A map of a million points by UMAP takes half an hour, so the audited map is UMAP's map of 5,000 points, among which the
other points are placed by their LLE weights.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.data import data_of
from bench.engine.audits import groups
from bench.engine.memory import GIB, MILLION, peak_bytes
from bench.report import at_most, run_apart
from glle_engine import fit
from glle_engine.audit.audit import audit
from glle_engine.base.errors import MissingLibraryError
from glle_engine.linalg import LANES
from glle_engine.methods.registry import method
from glle_engine.reliability.resamples import placing_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bench.report import Row

LANDMARKS = 2_000
MAPPED = 5_000  # points that UMAP embeds
PARTS = 10  # of the other points, so that their weights fit into memory
MAX_BYTES, MAX_FIT, MAX_DRAW, MAX_AUDIT = 8.0, 60.0, 1.0, 60.0  # GiB, and seconds


def rows() -> Iterator[Row]:
    """Yield the results, each from a process of its own; the audit is left out if UMAP is not installed."""
    result, what = run_apart(__name__, "landmarks"), f"cube-3-50 by {LANDMARKS:,} landmarks, n = {MILLION:,}"
    yield at_most(f"fit of a posterior, {what}", result["fit"], "s", MAX_FIT)
    yield at_most(f"a further draw, {what}", result["draw"], "s", MAX_DRAW, "-", **{"one of four s": result["of four"]})
    yield at_most(f"peak memory of a fit and draws, {what}", result["peak"] / GIB, "GiB", MAX_BYTES)
    if result := run_apart(__name__, "audit"):
        work = f"audit beside the map, umap, groups, n = {MILLION:,}"
        yield at_most(work, result["audit"], "s", MAX_AUDIT)
        yield at_most(f"peak memory, {work}", result["peak"] / GIB, "GiB", MAX_BYTES)


def landmark_times() -> dict[str, float]:
    """Fit by landmarks, and draw one embedding, four together, and one more; return seconds and peak bytes."""
    X = data_of("cube-3-50", MILLION)
    started = time.perf_counter()
    posterior = fit(X, landmarks=LANDMARKS)
    fields = {"fit": time.perf_counter() - started}
    posterior.draw(0)  # the first draw analyses the pattern and allocates
    started = time.perf_counter()
    for _ in posterior.draws(LANES, first=1):
        pass
    fields["of four"] = (time.perf_counter() - started) / LANES
    started = time.perf_counter()
    posterior.draw(1 + LANES)
    return fields | {"draw": time.perf_counter() - started, "peak": peak_bytes()}


def audit_times() -> dict[str, float]:
    """Audit a map by UMAP; return seconds and peak bytes, or nothing if UMAP is not installed."""
    X = groups(MILLION)
    try:
        Y = _map_by_umap(X)
    except MissingLibraryError:
        return {}
    started = time.perf_counter()
    audit(X, Y, method="umap")
    return {"audit": time.perf_counter() - started, "peak": peak_bytes()}


def _map_by_umap(X: NDArray[np.float64]) -> NDArray[np.float64]:
    order = np.random.default_rng(0).permutation(len(X))
    mapped, others = np.sort(order[:MAPPED]), np.sort(order[MAPPED:])
    Y = np.empty((len(X), 2))
    Y[mapped] = method("umap").embed(X[mapped]).embedding
    for part in np.array_split(others, PARTS):
        Y[part] = placing_weights(X[mapped], X[part]).embed(Y[mapped])
    return Y


if __name__ == "__main__":
    print(json.dumps(landmark_times() if sys.argv[1] == "landmarks" else audit_times()))
