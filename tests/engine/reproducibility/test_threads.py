"""Methods whose bits are promised have them on every number of threads of BLAS and of numba."""

import os
import subprocess
import sys

import numpy as np

from glle_engine.methods import METHODS, method

N = 300
_TASK = "from tests.engine.reproducibility.test_threads import print_embeddings; print_embeddings()"


def print_embeddings() -> None:
    """Print the digest of the embedding by each such method; the data are large enough for BLAS to use its threads."""
    X = np.random.default_rng(0).normal(size=(N, 40))
    for name, chosen in METHODS.items():
        if chosen.reproducible:
            labels = np.arange(N) % 2 if chosen.labels else None
            spec = chosen.spec(**({"class_distance": 0.0} if chosen.labels else {}))
            print(name, hash(method(name).embed(X, spec, labels=labels).Y.tobytes()))  # noqa: T201 # to the test


def test_the_number_of_threads_changes_no_promised_bit() -> None:
    """One thread and three, which divide no block evenly."""
    outputs = set()
    for threads in ("1", "3"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
        variables = {**os.environ, **dict.fromkeys(names, threads), "PYTHONHASHSEED": "0"}
        variables |= {"NUMBA_NUM_THREADS": str(min(int(threads), os.cpu_count() or 1))}
        done = subprocess.run([sys.executable, "-c", _TASK], env=variables, capture_output=True, text=True, check=True)
        outputs.add(done.stdout)
    (output,) = outputs
    assert len(output.splitlines()) == sum(chosen.reproducible for chosen in METHODS.values())
