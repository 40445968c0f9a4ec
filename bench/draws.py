"""Time a draw against scipy's eigsh on M, side by side in one run, one core."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, identity
from scipy.sparse.linalg import eigsh

from glle_engine import Posterior, fit, manifolds

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

GOAL = 5.5


def by_eigsh(posterior: Posterior, index: int) -> NDArray[np.float64]:
    """Draw as scikit-learn's LLE solves: form M, shift-invert ARPACK, drop the first vector."""
    n, k = posterior.neighbors.shape
    p = posterior.spec.n_components
    weights = posterior.weights(index)
    pattern = (posterior.neighbors.ravel(), np.arange(0, n * k + 1, k))
    residual = identity(n, format="csr") - csr_array((weights.ravel(), *pattern), shape=(n, n))
    start = np.random.default_rng(0).uniform(-1, 1, n)
    _, vectors = eigsh((residual.T @ residual).tocsc(), p + 1, sigma=0.0, v0=start)
    return np.asarray(vectors[:, 1:] * np.sqrt(n))


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name: str, n: int, repeats: int) -> float:
    """Print one row, the two interleaved draw by draw; return the median ratio."""
    posterior = fit(manifolds.make(name, n, seed=0).X)
    posterior.draw(0)
    ours, theirs = [], []
    for index in range(repeats):
        ours.append(seconds(lambda i=index: posterior.draw(i)))  # type: ignore[misc]  # bound at once
        theirs.append(seconds(lambda i=index: by_eigsh(posterior, i)))  # type: ignore[misc]  # likewise
    ratio = float(np.median(np.array(theirs) / np.array(ours)))
    print(
        f"{name:<16} {n:>7} {np.median(ours) * 1e3:>10.1f} {np.median(theirs) * 1e3:>10.1f} {ratio:>8.2f}", flush=True
    )
    return ratio


def main() -> None:
    """Run the table; exit with 1 when a draw at n = 5,000 misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--large", action="store_true", help="n = 100,000 too (minutes)")
    options = parser.parse_args()
    print(f"{'data':<16} {'n':>7} {'draw ms':>10} {'eigsh ms':>10} {'ratio':>8}   (medians, one core)")
    at_goal = [compare(name, 5000, options.repeats) for name in manifolds.NAMES]
    compare("swiss_roll", 2000, options.repeats)
    compare("swiss_roll", 20_000, max(3, options.repeats // 3))
    if options.large:
        compare("swiss_roll", 100_000, 3)
    worst = min(at_goal)
    verdict = "reached" if worst >= GOAL else "MISSED"
    print(f"worst ratio at n = 5,000: {worst:.2f}; goal {GOAL}: {verdict}")
    if worst < GOAL:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
