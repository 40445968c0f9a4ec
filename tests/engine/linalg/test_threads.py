"""Parallel loops of numba and searches by faiss work in forked processes and for several callers."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import GlleError, fit, manifolds
from glle_engine.linalg.threads import numba_loops
from tests.engine.methods.reference import LIBRARIES, embed, import_or_skip

pytestmark = [
    pytest.mark.timeout(600),  # libraries are compiled at their first import
    pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP is the default on Linux alone"),
]
X = manifolds.make("s_curve", 150, seed=0).X


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
@pytest.mark.parametrize(
    "name", ["loops", *(pytest.param(name, marks=pytest.mark.slow) for name in ("umap", "pacmap"))]
)
def test_loops_in_children_and_threads(name: str, layer: str) -> None:
    """Four threads get equal results, and so does a forked child, or an error tells it to be spawned."""
    if name in LIBRARIES:
        import_or_skip(LIBRARIES[name])
    told = "spawn (multiprocessing.get_context('spawn')) or by loky" if layer == "omp" else "equal"
    assert told in _run(name, NUMBA_THREADING_LAYER=layer)


def test_approximate_neighbors_in_a_child() -> None:
    """A forked child finds the neighbors that its parent finds."""
    pytest.importorskip("faiss")
    assert _run("neighbors") == "equal"


def _run(task: str, **environment: str) -> str:
    """Run a task in a process, in four of its threads and in a forked child; return what the child prints."""
    several = {"OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2", **environment}
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.linalg.test_threads", task]
    done = subprocess.run(command, env={**os.environ, **several}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@numba_loops("The test")
def _loops() -> NDArray[np.float64]:
    return np.asarray(_squares(np.arange(1000.0)))


@numba.njit(parallel=True, cache=True)  # type: ignore[untyped-decorator]
def _squares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.empty_like(values)
    for i in numba.prange(len(values)):
        out[i] = values[i] ** 2
    return out


_TASKS: dict[str, Callable[[], NDArray[np.float64]]] = {
    "loops": _loops,
    "umap": lambda: embed("umap", X, max_iter=10).Y,
    "pacmap": lambda: embed("pacmap", X, max_iter=10).Y,
    "neighbors": lambda: fit(X, n_neighbors=8, search="approximate").embedding,
}


def _compare(task: str, expected: NDArray[np.float64]) -> str:
    return "equal" if np.array_equal(_TASKS[task](), expected) else "different"


if __name__ == "__main__":
    named, result = sys.argv[1], _TASKS[sys.argv[1]]()
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(_compare, [named] * 8, [result] * 8)) == {"equal"}
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            sys.stdout.write(pool.apply_async(_compare, (named, result)).get(60))
        except GlleError as error:
            sys.stdout.write(str(error))
