"""Estimates of fits and draws: the work is that of the factors, extrapolated for many points."""

import json
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import fit, manifolds
from glle_engine.base.errors import GlleError
from glle_engine.base.spec import FitSpec
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.neighbors import kneighbors, search_cost
from glle_engine.linalg import LANES
from glle_engine.posterior.cost import rates
from glle_engine.posterior.cost.estimate import Estimate, Search, draw_cost, estimate
from glle_engine.posterior.cost.rates import BASE_BYTES, Factorization, analyse
from glle_engine.posterior.fit import DRAWS


def cube(dimension: int, n: int, features: int = 8) -> NDArray[np.float64]:
    """Return a smooth map of n points of the unit cube."""
    rng = np.random.default_rng(dimension)
    points = rng.random((n, dimension))
    linear, frequencies = rng.standard_normal((2, dimension, features))
    return np.asarray(points @ linear + np.sin(points @ frequencies + rng.random(features)))


@pytest.mark.parametrize("dimension", [2, 3])
def test_work_of_many_points_is_extrapolated(dimension: int) -> None:
    """Subsamples predict fill and operations of the whole graph, and see the dimension of the data."""
    X = cube(dimension, 8000)
    expected = estimate(X, n_neighbors=10)
    assert max(expected.factorization.points) == rates.MAX_ANALYSED
    assert expected.factorization.dimension == pytest.approx(dimension, rel=0.15)
    work = analyse(np.sort(kneighbors(X, 10)[0], axis=1))
    assert 1 / 1.4 <= expected.work.entries / work.entries <= 1.4
    assert 1 / 2 <= expected.work.flops / work.flops <= 2


def test_few_points_are_analysed_for_many_neighbors_and_features() -> None:
    """The estimate stays a small part of the work; few points have one size, and cost next to nothing."""
    X = cube(1, 3000)
    assert estimate(X, n_neighbors=10).factorization.points == (1500, 3000)
    assert Factorization.of(X, 75).points == (1000, 2000)
    assert Factorization.of(np.repeat(X, 250, axis=1), 10).points == (375, 750)
    few = estimate(X[:40], n_neighbors=5)
    assert few.factorization.points == (40,)
    assert 0 < few.draw.seconds == few.single_draw_seconds < 0.1


@pytest.mark.parametrize("landmarks", ["auto", "all", 300])
def test_an_estimate_is_a_function_of_the_data(landmarks: Any) -> None:
    """Equal data have equal estimates, whatever the unit, which pass through JSON unchanged."""
    X, spec = manifolds.make("s_curve", 1200, seed=1).X, FitSpec(n_neighbors=8, n_components=3, landmarks=landmarks)
    expected = estimate(X, n_neighbors=8, n_components=3, landmarks=landmarks)
    assert estimate(4 * X, spec) == expected
    assert Estimate.from_dict(json.loads(json.dumps(expected.to_dict(), allow_nan=False))) == expected


def test_cost_grows_with_dimension_points_and_neighbors() -> None:
    """Fill grows with the intrinsic dimension; every cost grows with n and k, that of a fit with its options."""
    flat, deep = (estimate(cube(dimension, 1500), n_neighbors=10) for dimension in (2, 5))
    assert deep.factorization.dimension > flat.factorization.dimension + 1
    assert deep.work.flops > 10 * flat.work.flops
    assert deep.draw.seconds > flat.draw.seconds
    for more in (deep.at(3000), estimate(cube(5, 1500), n_neighbors=20)):
        for part in ("fit.seconds", "fit.bytes", "draw.seconds", "draw.bytes", "posterior_bytes"):
            assert attrgetter(part)(more) > attrgetter(part)(deep), part
    assert deep.fit.seconds == pytest.approx(sum(deep.stages.values()))
    X, variant = cube(2, 300), {"variant": "published", "covariance": "full"}
    for options in ({"noise": "tangent"}, {"neighborhoods": "adaptive"}, variant):
        assert estimate(X, **options).fit.seconds > estimate(X).fit.seconds  # type: ignore[arg-type]
    alone = [rates.pivoting_seconds(n, rates.Work(0.0, 0.0, 0.0)) for n in (1000, 2000)]
    assert alone[1] == 2 * alone[0] > 0


def test_bytes_cover_the_arrays_of_draws() -> None:
    """The workspace of four lanes and the arrays of the posterior are within the estimate."""
    posterior, expected = fit(cube(5, 1500), n_neighbors=10), estimate(cube(5, 1500), n_neighbors=10)
    structure, distribution = posterior.eigenproblem.pattern.structure, posterior.distribution
    lanes = 8 * LANES * (structure.lower_size + structure.upper_size + structure.block_size)
    held = sum(
        array.nbytes for array in (distribution.mean, distribution.factor, posterior.neighbors, posterior.embedding)
    )
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
    assert estimate(X, n_neighbors=10, landmarks=1000) == whole
    limit = whole.draw.seconds / 2
    most = whole.most_landmarks(lambda other: other.draw.seconds <= limit)
    assert most is not None
    fewer, more = (replace(whole, spec=replace(whole.spec, landmarks=m)) for m in (most, most + 1))
    assert fewer.draw.seconds <= limit < more.draw.seconds
    assert whole.most_landmarks(lambda _: False) is None
    assert estimate(X, variant="published").most_landmarks(lambda _: True) is None


@pytest.mark.parametrize("options", [{"n_neighbors": 30}, {"n_components": 200}, {"neighbors": 5}])
def test_bad_requests_are_refused_as_by_the_fit(options: Any) -> None:
    """Too few points for the neighbors or the components, and unknown parameters raise the errors of the fit."""
    with pytest.raises(GlleError):
        estimate(cube(2, 30), **options)


def test_the_search_grows_as_a_power() -> None:
    """Pairs grow faster in many dimensions; the time of all points is the prediction of the search itself."""
    X, spec, rough = cube(2, 1600), FitSpec(n_neighbors=10), FitSpec(search="approximate")
    flat = Search.of(X, spec)
    assert flat.at(1600) == flat.seconds == search_cost(X, 10).seconds
    assert flat.at(3200) / flat.seconds == pytest.approx(2**flat.exponent)
    assert 1 <= flat.exponent <= Search.of(np.random.default_rng(0).normal(size=(1600, 20)), spec).exponent <= 2
    assert Search.of(X[:30], spec).exponent == 2
    assert Search.of(X, rough).at(3200) > 2 * Search.of(X, rough).seconds


@pytest.mark.parametrize("options", [{}, {"landmarks": 200}, {"variant": "published"}])
def test_the_cost_of_draws_follows_from_the_posterior(options: dict[str, Any]) -> None:
    """Draws of a fitted posterior cost as its estimate said, whatever its fit took; more dimensions have more fill."""
    X = cube(2, 600)
    cost, expected = draw_cost(fit(X, **options)), estimate(X, **options)
    assert cost.each_seconds == pytest.approx(expected.draw.seconds, rel=0.2)
    assert cost.seconds == pytest.approx(expected.single_draw_seconds, rel=0.2)
    assert cost.bytes == pytest.approx(expected.draw.bytes, rel=0.2)
    assert draw_cost(fit(cube(5, 600), **options)).seconds > 1.1 * cost.seconds


def test_published_draws_cost_what_other_solvers_than_the_lanes_take() -> None:
    """Refined draws cost more than constrained ones, singular ones much more; alone, only the lanes are idle."""
    X, options = cube(3, 600, 6), {"n_neighbors": 10, "variant": "published"}
    kept, refined = estimate(X, n_neighbors=10), estimate(X, **options, method="direct")  # type: ignore[arg-type]
    singular, mean = estimate(X, **options), estimate(cube(3, 600, 12), **options)  # type: ignore[arg-type]
    assert 2 * kept.draw.seconds < refined.draw.seconds < singular.draw.seconds / 4
    assert mean.draw.seconds < singular.draw.seconds / 4, "with more features than neighbors B has full rank"
    for expected in (refined, singular):
        fallback = rates.fallback_seconds(600, expected.work, expected.spec, 6)
        lane = expected.draw.seconds - fallback
        assert expected.single_draw_seconds == pytest.approx(LANES * lane + fallback)
        posterior = fit(X, expected.spec)
        assert draw_cost(posterior).each_seconds > fallback > rates.draw_seconds(600, kept.work, kept.spec, 6)


def test_draws_without_lanes_cost_as_much_each_as_alone() -> None:
    """Several closed classes are solved one draw at a time, with pivoting."""
    rng = np.random.default_rng(1)
    bridge = np.stack([np.linspace(3, 27, 12), np.zeros(12)], axis=1)
    X = np.concatenate([rng.normal(0, 1, (80, 2)), rng.normal((30, 0), 1, (70, 2)), bridge])
    posterior = fit(X, n_neighbors=6, disconnected="error")
    assert len(posterior.pins) == 2
    assert draw_cost(posterior).each_seconds == draw_cost(posterior).seconds
    assert draw_cost(posterior).to_dict().keys() == {"seconds", "each_seconds", "bytes"}


@pytest.mark.parametrize("kind", ["random", "sheet", "without order"])
def test_the_fill_is_counted_as_the_structure_has_it(kind: str) -> None:
    """Entries and operations are those of the structure, which is not made, and the scratch area covers its blocks.

    A random graph of many points, whose factors are dense and larger than the memory, is counted at once.
    """
    rng = np.random.default_rng(0)
    if kind == "random":
        many = np.sort(rng.integers(0, 100_000, (100_000, 8)), axis=1).astype(np.int32)
        assert rates.count_work(Pattern.of(many)).entries > 100_000**2 / 4
        apart = np.stack([1 + rng.choice(699, 5, replace=False) for _ in range(700)])
        pattern = Pattern.of(np.sort((np.arange(700)[:, None] + apart) % 700, axis=1).astype(np.int32))
    else:
        pattern = Pattern.of(np.sort(kneighbors(cube(2 if kind == "sheet" else 5, 900), 8)[0], axis=1))
        pattern = pattern.order_for(DRAWS)[0] if kind == "sheet" else pattern
    work, structure = rates.count_work(pattern), pattern.structure
    assert work.entries == structure.lower_size + structure.upper_size
    width, below = np.diff(structure.first).astype(float), np.diff(structure.row_start)
    assert work.flops == pytest.approx((2 * width * (width**2 / 3 + width * below + below**2)).sum())
    assert structure.block_size <= work.scratch <= 2 * structure.block_size
