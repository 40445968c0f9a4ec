"""Estimates of fits and draws: the work is that of the factors, extrapolated for many points."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.base.errors import GlleError
from glle_engine.base.spec import FitSpec
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.search_cost import search_cost
from glle_engine.linalg import LANES
from glle_engine.posterior.cost import factorization
from glle_engine.posterior.cost.drawing import draw_cost
from glle_engine.posterior.cost.estimate import Estimate, Search, estimate
from glle_engine.posterior.cost.factorization import Factorization, Work, analyse
from glle_engine.posterior.cost.rates import BASE_BYTES
from glle_engine.posterior.fit import DRAWS

if TYPE_CHECKING:
    from numpy.typing import NDArray


def cube(dimension: int, n: int, features: int = 8) -> NDArray[np.float64]:
    """Return a smooth map of n points of the unit cube."""
    rng = np.random.default_rng(dimension)
    points = rng.random((n, dimension))
    linear, frequencies = rng.standard_normal((2, dimension, features))
    return np.asarray(points @ linear + np.sin(points @ frequencies + rng.random(features)))


def column_counts(pattern: Pattern) -> NDArray[np.int64]:
    """Return the rows below the diagonal of each column of L, by elimination of a dense pattern."""
    n = len(pattern.order)
    filled = np.eye(n, dtype=bool)
    filled[np.arange(n)[:, None], pattern.neighbors] = True
    filled = (filled | filled.T)[np.ix_(pattern.order, pattern.order)]
    for j in range(n):
        below = j + 1 + np.flatnonzero(filled[j + 1 :, j])
        filled[np.ix_(below, below)] = True
    return np.asarray([filled[j + 1 :, j].sum() for j in range(n)], np.int64)


def test_work_of_few_points_is_that_of_the_fit(sheet: NDArray[np.float64]) -> None:
    """The entries are the stored ones of the structure that the draws of the fit use."""
    work = estimate(sheet, n_neighbors=10).work
    structure = fit(sheet, n_neighbors=10).eigenproblem.pattern.structure
    assert work.entries == structure.lower_size + structure.upper_size
    assert structure.block_size <= work.scratch <= 2 * structure.block_size


def test_work_is_that_of_the_elimination(sheet: NDArray[np.float64]) -> None:
    """Elimination of the dense pattern has as many operations, but for the zeros that supernodes store."""
    neighbors = np.sort(kneighbors(sheet, 8)[0], axis=1)
    count = column_counts(Pattern.of(neighbors).order_for(DRAWS)[0])
    entries, flops = (2 * count + 1).sum(), (count * (2 * count + 1)).sum()
    work = analyse(neighbors)
    assert entries <= work.entries <= 1.5 * entries
    assert 0.9 * flops <= work.flops <= 1.6 * flops


@pytest.mark.parametrize(("X", "dimension"), [(cube(2, 16_000), 2), (cube(3, 8000), 3)])
def test_work_of_many_points_is_extrapolated(X: NDArray[np.float64], dimension: int) -> None:
    """Subsamples predict fill and operations of the whole graph, and see the dimension of the data."""
    expected = estimate(X, n_neighbors=10)
    assert max(expected.factorization.points) == factorization.MAX_ANALYSED
    assert expected.factorization.dimension == pytest.approx(dimension, rel=0.15)
    work = analyse(np.sort(kneighbors(X, 10)[0], axis=1))
    assert 1 / 1.4 <= expected.work.entries / work.entries <= 1.4
    assert 1 / 2 <= expected.work.flops / work.flops <= 2


def test_few_points_are_analysed_for_many_neighbors_and_features() -> None:
    """The estimate stays a small part of the work."""
    X = cube(1, 3000)
    assert estimate(X, n_neighbors=10).factorization.points == (1500, 3000)
    assert Factorization.of(X, 75).points == (1000, 2000)
    assert Factorization.of(np.repeat(X, 250, axis=1), 10).points == (375, 750)


def test_an_estimate_is_a_function_of_the_data() -> None:
    """Equal data have equal estimates, which pass through JSON unchanged."""
    X = manifolds.make("s_curve", 1200, seed=1).X
    expected = estimate(X, n_neighbors=8, n_components=3)
    assert estimate(X.copy(), FitSpec(n_neighbors=8, n_components=3)) == expected
    assert Estimate.from_dict(json.loads(json.dumps(expected.to_dict(), allow_nan=False))) == expected
    assert estimate(4 * X, n_neighbors=8, n_components=3) == expected  # the fit does not depend on the unit


def test_cost_grows_with_dimension_points_and_neighbors() -> None:
    """Fill grows with the intrinsic dimension; every cost grows with n and k."""
    flat, deep = (estimate(cube(dimension, 1500), n_neighbors=10) for dimension in (2, 5))
    assert deep.factorization.dimension > flat.factorization.dimension + 1
    assert deep.work.flops > 10 * flat.work.flops
    assert deep.draw.seconds > flat.draw.seconds
    for more in (deep.at(3000), estimate(cube(5, 1500), n_neighbors=20)):
        assert more.fit.seconds > deep.fit.seconds
        assert more.fit.bytes > deep.fit.bytes
        assert more.draw.seconds > deep.draw.seconds
        assert more.draw.bytes > deep.draw.bytes
        assert more.posterior_bytes > deep.posterior_bytes
    assert deep.fit.seconds == pytest.approx(sum(deep.stages.values()))


def test_dense_factors_bound_the_growth() -> None:
    """Exponents are the means of those of separators and of the counted ones, at most those of dense factors."""
    sheet = Factorization((1000, 2000), (Work(10.0, 1000.0, 10.0), Work(1000.0, 1000.0, 5.0)), 2.0)
    assert sheet.exponents == pytest.approx(((2 + 1.1) / 2, (1 + 1.5) / 2, (2 + 1.1) / 2))
    assert sheet.at(4000) == pytest.approx((1000 * 2**1.55, 1000 * 2**1.25, 5 * 2**1.55))
    assert sheet.at(2000) == sheet.works[1]
    cube = Factorization((1000, 2000), (Work(10.0, 10.0, 10.0), Work(15.0, 1000.0, 10.0)), 3.0)
    assert cube.exponents == pytest.approx(((1 + 4 / 3) / 2, (3 + 2) / 2, (1 + 4 / 3) / 2))
    for dimension in (0.5, 1.0, 1e6):
        exponents = Factorization(cube.points, cube.works, dimension).exponents
        assert 1 <= exponents.entries <= 2
        assert 1 <= exponents.flops <= 3


def test_bytes_cover_the_arrays_of_draws() -> None:
    """The workspace of four lanes and the arrays of the posterior are within the estimate."""
    posterior = fit(cube(5, 1500), n_neighbors=10)
    expected = estimate(cube(5, 1500), n_neighbors=10)
    structure = posterior.eigenproblem.pattern.structure
    lanes = 8 * LANES * (structure.lower_size + structure.upper_size + structure.block_size)
    law = posterior.law
    held = law.mean.nbytes + law.factor.nbytes + posterior.neighbors.nbytes + posterior.embedding.nbytes
    assert expected.posterior_bytes == pytest.approx(held, rel=0.05)
    assert lanes + held < expected.draw.bytes < 2 * (lanes + held) + BASE_BYTES
    assert expected.single_draw_seconds == pytest.approx(LANES * expected.draw.seconds)


def test_most_points_is_the_largest_affordable_number() -> None:
    """One more point costs more than the limit; without a limit all points are affordable."""
    expected = estimate(cube(3, 1000), n_neighbors=10)
    limit = expected.fit.seconds / 3
    most = expected.most_points(lambda other: other.fit.seconds <= limit)
    assert most is not None
    assert expected.at(most).fit.seconds <= limit < expected.at(most + 1).fit.seconds
    assert expected.most_points(lambda _: True) == 1000
    assert expected.most_points(lambda _: False) is None


def test_landmarks_are_estimated_and_their_feasible_number_found() -> None:
    """The eigenproblem is that of the landmarks; more of them cost more, and as many as points are a full fit."""
    X = cube(3, 1000)
    whole, marked = estimate(X, n_neighbors=10), estimate(X, n_neighbors=10, landmarks=300)
    assert (marked.n, marked.size, marked.factorization.points[-1]) == (1000, 300, 300)
    assert {"landmarks", "placing"} <= marked.stages.keys()
    assert Estimate.from_dict(json.loads(json.dumps(marked.to_dict()))) == marked
    assert estimate(X, n_neighbors=10, landmarks=1000) == whole
    limit = whole.draw.seconds / 2
    most = whole.most_landmarks(lambda other: other.draw.seconds <= limit)
    assert most is not None
    fewer, more = (replace(whole, spec=replace(whole.spec, landmarks=m)) for m in (most, most + 1))
    assert fewer.draw.seconds <= limit < more.draw.seconds
    assert fewer.n == 1000
    assert whole.most_landmarks(lambda _: False) is None
    assert estimate(X, variant="published").most_landmarks(lambda _: True) is None


def test_few_points_are_dense() -> None:
    """Few points have one size, and cost next to nothing."""
    expected = estimate(cube(2, 40), n_neighbors=5)
    assert expected.factorization.points == (40,)
    assert 0 < expected.draw.seconds == expected.single_draw_seconds < 0.1


@pytest.mark.parametrize(
    "options", [{"noise": "tangent"}, {"neighborhoods": "adaptive"}, {"variant": "published", "covariance": "full"}]
)
def test_options_that_cost_more_are_estimated_higher(options: dict[str, str]) -> None:
    """Tangent frames, adaptive neighborhoods and full covariances take longer than the default."""
    X = cube(2, 300)
    assert estimate(X, **options).fit.seconds > estimate(X).fit.seconds  # type: ignore[arg-type] # names of the parametrization


def test_bad_requests_are_refused_as_by_the_fit() -> None:
    """Too few points, a matrix that is not finite, and unknown parameters raise the errors of the fit."""
    for X, options in (
        (cube(2, 8), {"n_neighbors": 10}),
        (np.full((30, 2), np.nan), {}),
        (cube(2, 300), {"n_components": 200}),
        (cube(2, 30), {"neighbors": 5}),
    ):
        with pytest.raises(GlleError):
            estimate(X, **options)  # type: ignore[arg-type] # names of the parametrization


def test_the_search_grows_as_a_power() -> None:
    """Pairs grow faster in many dimensions; the time of all points is the prediction of the search itself."""
    X, spec = cube(2, 1600), FitSpec(n_neighbors=10)
    flat = Search.of(X, spec)
    assert flat.at(1600) == flat.seconds == search_cost(X, 10).seconds
    assert flat.at(3200) / flat.seconds == pytest.approx(2**flat.exponent)
    assert 1 <= flat.exponent <= Search.of(np.random.default_rng(0).normal(size=(1600, 20)), spec).exponent <= 2
    assert Search.of(X[:30], spec).exponent == 2
    assert (
        Search.of(X, FitSpec(search="approximate")).at(3200) > 2 * Search.of(X, FitSpec(search="approximate")).seconds
    )


def random_pattern(n: int, k: int) -> Pattern:
    """Return k random neighbors of each of n points, in the order of the points."""
    rng = np.random.default_rng(n)
    others = np.stack([rng.choice(n - 1, k, replace=False) for _ in range(n)])
    return Pattern.of(np.sort(others + (others >= np.arange(n)[:, None]), axis=1).astype(np.int32))


@pytest.mark.parametrize(
    "pattern",
    [
        random_pattern(700, 5),
        Pattern.of(np.sort(kneighbors(cube(2, 900), 8)[0], axis=1)).order_for(DRAWS)[0],
        Pattern.of(np.sort(kneighbors(cube(5, 900), 8)[0], axis=1)),
    ],
    ids=["random", "sheet", "without-order"],
)
def test_the_fill_is_counted_as_the_structure_has_it(pattern: Pattern) -> None:
    """Entries and operations are those of the structure, which is not made, and the scratch area covers its blocks."""
    work, structure = factorization.count_work(pattern), pattern.structure
    assert work.entries == structure.lower_size + structure.upper_size
    width, below = np.diff(structure.first).astype(float), np.diff(structure.row_start)
    assert work.flops == pytest.approx((2 * width * (width**2 / 3 + width * below + below**2)).sum())
    assert structure.block_size <= work.scratch <= 2 * structure.block_size


def test_a_dense_fill_is_counted_in_the_memory_of_the_graph() -> None:
    """A random graph, whose factors are dense and larger than the memory, has a cost at once."""
    n = 100_000
    neighbors = np.sort(np.random.default_rng(0).integers(0, n, (n, 8)), axis=1).astype(np.int32)
    assert factorization.count_work(Pattern.of(neighbors)).entries > n * n / 4


@pytest.mark.parametrize("options", [{}, {"landmarks": 200}, {"variant": "published"}])
def test_the_cost_of_draws_follows_from_the_posterior(options: dict[str, Any]) -> None:
    """Draws of a fitted posterior cost as its estimate said, whatever its fit took; more dimensions have more fill."""
    X = cube(2, 600)
    cost, expected = draw_cost(fit(X, **options)), estimate(X, **options)
    assert cost.each_seconds == pytest.approx(expected.draw.seconds, rel=0.2)
    assert cost.seconds == pytest.approx(expected.single_draw_seconds, rel=0.2)
    assert cost.bytes == pytest.approx(expected.draw.bytes, rel=0.2)
    assert draw_cost(fit(cube(5, 600), **options)).seconds > 1.1 * cost.seconds


def test_draws_without_lanes_cost_as_much_each_as_alone() -> None:
    """Several closed classes are solved one draw at a time, with pivoting."""
    rng = np.random.default_rng(1)
    bridge = np.stack([np.linspace(3, 27, 12), np.zeros(12)], axis=1)
    X = np.concatenate([rng.normal(0, 1, (80, 2)), rng.normal((30, 0), 1, (70, 2)), bridge])
    posterior = fit(X, n_neighbors=6, disconnected="error")
    assert len(posterior.pins) == 2
    assert draw_cost(posterior).each_seconds == draw_cost(posterior).seconds
    assert draw_cost(posterior).to_dict().keys() == {"seconds", "each_seconds", "bytes"}
