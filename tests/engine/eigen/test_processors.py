"""The bits of the eigenproblem, of draws and of their alignment on other processors."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from qa.processors.__main__ import other_processors

pytest.importorskip("numba")

EVERYTHING = """
import hashlib
import numpy as np
from glle_engine.base.diagnostics import Diagnostics
from glle_engine.eigen.eigenproblem import Eigenproblem, scaled
from glle_engine.eigen.lu import factor
from glle_engine.graph.connectivity import closed_classes
from glle_engine.weights.gaussian import WeightLaw
from glle_engine.posterior.posterior import Posterior
from glle_engine.base.spec import FitSpec
from tests.engine.eigen.hard_problems import with_vanishing_pivot, with_weak_point


def uniform(key, *shape):
    words = np.random.Philox(key=key).random_raw(int(np.prod(shape)))
    return ((words >> np.uint64(11)) * 2.0**-53).reshape(shape)


def ring(n, k, key):
    steps = 1 + np.argsort(uniform(key, n, 3 * k), axis=1, kind="stable")[:, :k]
    back = (uniform(key + 1, n, k) < 0.5) & (2 * steps < n)
    offsets = np.where(back, n - steps, steps)
    return np.sort((np.arange(n)[:, None] + offsets) % n, axis=1).astype(np.int32)


def show(name, *arrays):
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    print(name, hashlib.sha256(content).hexdigest())


def weights_of(neighbors, key):
    raw = uniform(key + 2, *neighbors.shape) + 0.2
    return raw / raw.sum(axis=1, keepdims=True)


def fitted(name, spec, neighbors, weights, key, spread=0.05):
    n, k = neighbors.shape
    factor = spread * (uniform(key + 3, n, k, k) - 0.5)
    prior = None
    if spec.variant == "constrained":
        factor, prior = factor - factor.mean(axis=1, keepdims=True), np.full(n, 0.1)
    problem, pairs = Eigenproblem.prepare(neighbors, weights, closed_classes(neighbors), spec.n_components + 1)
    assert pairs.diagnostics["solver"] != "shift-invert", pairs.diagnostics
    show(name, problem.pattern.order, problem.pins, pairs.values, pairs.vectors)
    constrained = spec.variant == "constrained"
    return Posterior(
        spec=spec,
        neighbors=neighbors,
        law=WeightLaw(weights, factor, 1 / k, prior, constrained, None),
        embedding=scaled(pairs.vectors[:, : spec.n_components]),
        eigenvalues=pairs.values,
        order=problem.pattern.order,
        pins=problem.pins if constrained else problem.pins[:0],
        diagnostics=Diagnostics(),
    )


def draw(name, posterior, **options):
    for align in ("procrustes", "none"):
        drawn = list(posterior.draws(6, align=align, **options))
        solvers = sorted({one.diagnostics["solver"] for one in drawn})
        assert "shift-invert" not in solvers
        apart = np.array([one.diagnostics["disparity"] for one in drawn])
        show(f"{name} {align} {solvers}", *(one.embedding for one in drawn), *(one.eigenvalues for one in drawn), apart)
    show(f"{name} weights", posterior.weights(3, **options))


plain, published = FitSpec(), FitSpec(variant="published", method="direct")
neighbors = ring(400, 8, 10)
weights = weights_of(neighbors, 10)
usual = fitted("constrained", plain, neighbors, weights, 10)
draw("constrained", usual)
draw("constrained", usual, source="prior")
draw("constrained", usual, scale=2000.0)
draw("published", fitted("published", published, neighbors, weights, 10))
draw("five", fitted("five", FitSpec(n_components=5), ring(300, 10, 40), weights_of(ring(300, 10, 40), 40), 40))
few = ring(60, 6, 30)
draw("few", fitted("few", plain, few, weights_of(few, 30), 30))
draw("few published", fitted("few published", published, few, weights_of(few, 30), 30))
tail = np.sort(np.argsort(uniform(60, 10, 290), axis=1, kind="stable")[:, :6], axis=1)
two = np.concatenate([ring(150, 6, 50), ring(140, 6, 52) + 150, tail]).astype(np.int32)
draw("two classes", fitted("two classes", plain, two, weights_of(two, 50), 50))
draw("weak point", fitted("weak point", plain, neighbors, with_weak_point(neighbors, weights, 0), 10, spread=0.0))
structure = usual.eigenproblem.pattern.structure
pivotless = with_vanishing_pivot(neighbors, weights, structure.order)
draw("no pivot", fitted("no pivot", plain, neighbors, pivotless, 10, spread=0.0))
for permutation in ("NATURAL", "COLAMD"):
    factored = factor(usual.eigenproblem.pattern, weights, usual.pins, partial_pivoting=permutation == "COLAMD")
    pairs = factored.eigenpairs(3, factored.null_left(), exhaustive=True)
    show(permutation, pairs.values, pairs.vectors)
regular = ((np.arange(200)[:, None] + np.array([1, 2, 198, 199])) % 200).astype(np.int32)
fitted("multiple", plain, np.sort(regular, axis=1), np.full((200, 4), 0.25), 10)
"""


@cache
def digests(*settings: tuple[str, str]) -> list[str]:
    """Return the digests that a process with these environment variables computes."""
    command = [sys.executable, "-W", "ignore::ImportWarning", "-c", EVERYTHING]
    done = subprocess.run(
        command, env={**os.environ, **dict(settings)}, check=False, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("setting", other_processors(), ids=str)
def test_bits_do_not_depend_on_the_processor(setting: dict[str, str]) -> None:
    """Other kernels of OpenBLAS, and numpy without wide vectors, give the same digests."""
    assert digests(*setting.items()) == digests()
    assert len(digests()) > 30
