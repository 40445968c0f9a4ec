"""Digests of hard eigenproblems, of their draws and of the draws' alignment."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glle_engine.base.results import Diagnostics
from glle_engine.base.spec import FitSpec
from glle_engine.eigen.eigenproblem import Eigenproblem, scale_embedding
from glle_engine.eigen.lu import factor
from glle_engine.graph.connectivity import closed_classes
from glle_engine.posterior.posterior import Posterior
from glle_engine.weights.gaussian import WeightDistribution
from tests.engine.eigen.hard_problems import with_vanishing_pivot, with_weak_point

PLAIN, PUBLISHED = FitSpec(), FitSpec(variant="published", method="direct")


def uniform(key: int, *shape: int) -> NDArray[np.float64]:
    """Return numbers in [0, 1) with the same bits on every processor."""
    words = np.random.Philox(key=key).random_raw(int(np.prod(shape)))
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64).reshape(shape)


def ring(n: int, k: int, key: int) -> NDArray[np.int32]:
    """Return k neighbors of each point of a ring, some of them behind it."""
    steps = 1 + np.argsort(uniform(key, n, 3 * k), axis=1, kind="stable")[:, :k]
    back = (uniform(key + 1, n, k) < 0.5) & (2 * steps < n)
    offsets = np.where(back, n - steps, steps)
    return np.sort((np.arange(n)[:, None] + offsets) % n, axis=1).astype(np.int32)


def weights_of(neighbors: NDArray[np.int32], key: int) -> NDArray[np.float64]:
    """Return positive weights whose rows sum to 1."""
    raw = uniform(key + 2, *neighbors.shape) + 0.2
    return np.asarray(raw / raw.sum(axis=1, keepdims=True), np.float64)


def digest(*arrays: NDArray[Any] | float) -> str:
    """Return a short digest of all bits of numbers and arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def eigenproblem(
    spec: FitSpec, neighbors: NDArray[np.int32], weights: NDArray[np.float64], key: int, spread: float = 0.05
) -> tuple[Posterior, str]:
    """Return the posterior with these mean weights, and the digest of its eigenproblem."""
    n, k = neighbors.shape
    root = spread * (uniform(key + 3, n, k, k) - 0.5)
    prior = None
    constrained = spec.variant == "constrained"
    if constrained:
        root, prior = root - root.mean(axis=1, keepdims=True), np.full(n, 0.1)
    problem, pairs = Eigenproblem.prepare(neighbors, weights, closed_classes(neighbors), spec.n_components + 1)
    assert pairs.diagnostics["solver"] != "shift-invert", pairs.diagnostics
    posterior = Posterior(
        spec=spec,
        neighbors=neighbors,
        distribution=WeightDistribution(weights, root, 1 / k, prior, constrained, None),
        embedding=scale_embedding(pairs.vectors[:, : spec.n_components]),
        eigenvalues=pairs.values,
        order=problem.pattern.order,
        pins=problem.pins if constrained else problem.pins[:0],
        diagnostics=Diagnostics(),
    )
    return posterior, digest(problem.pattern.order, problem.pins, pairs.values, pairs.vectors)


def draws(posterior: Posterior, **options: Any) -> Iterator[tuple[str, str]]:
    """Yield the digests of aligned and of unaligned draws, named with their solvers, and of weights."""
    for align in ("procrustes", "none"):
        drawn = list(posterior.draws(6, align=align, **options))
        solvers = sorted({draw.diagnostics["solver"] for draw in drawn})
        assert "shift-invert" not in solvers
        apart = np.array([draw.diagnostics["disparity"] for draw in drawn])
        arrays = [array for draw in drawn for array in (draw.embedding, draw.eigenvalues)]
        yield f"{align} {solvers}", digest(*arrays, apart)
    yield "weights", digest(posterior.weights(3, **options))


def digests() -> dict[str, str]:
    """Return the digests of all eigenproblems, and of the draws of their posteriors."""
    by_name: dict[str, str] = {}

    def add(name: str, fitted: tuple[Posterior, str], **options: Any) -> None:
        posterior, by_name[f"eigenproblem {name}"] = fitted
        by_name.update({f"eigenproblem {name} {part}": value for part, value in draws(posterior, **options)})

    neighbors = ring(400, 8, 10)
    weights = weights_of(neighbors, 10)
    usual = eigenproblem(PLAIN, neighbors, weights, 10)
    add("constrained", usual)
    add("prior", usual, source="prior")
    add("large scale", usual, scale=2000.0)
    add("published", eigenproblem(PUBLISHED, neighbors, weights, 10))
    five = ring(300, 10, 40)
    add("five", eigenproblem(FitSpec(n_components=5), five, weights_of(five, 40), 40))
    few = ring(60, 6, 30)
    add("few", eigenproblem(PLAIN, few, weights_of(few, 30), 30))
    add("few published", eigenproblem(PUBLISHED, few, weights_of(few, 30), 30))
    tail = np.sort(np.argsort(uniform(60, 10, 290), axis=1, kind="stable")[:, :6], axis=1)
    two = np.concatenate([ring(150, 6, 50), ring(140, 6, 52) + 150, tail]).astype(np.int32)
    add("two classes", eigenproblem(PLAIN, two, weights_of(two, 50), 50))
    add("weak point", eigenproblem(PLAIN, neighbors, with_weak_point(neighbors, weights, 0), 10, spread=0.0))
    pattern, pins = usual[0].eigenproblem.pattern, usual[0].pins
    pivotless = with_vanishing_pivot(neighbors, weights, pattern.structure.order)
    add("no pivot", eigenproblem(PLAIN, neighbors, pivotless, 10, spread=0.0))
    factored = factor(pattern, weights, pins)
    pairs = factored.eigenpairs(3, factored.null_left(), exhaustive=True)
    by_name["eigenproblem factored"] = digest(pairs.values, pairs.vectors)
    regular = ((np.arange(200)[:, None] + np.array([1, 2, 198, 199])) % 200).astype(np.int32)
    multiple = eigenproblem(PLAIN, np.sort(regular, axis=1), np.full((200, 4), 0.25), 10)
    by_name["eigenproblem multiple"] = multiple[1]
    return by_name
