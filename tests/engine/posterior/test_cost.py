"""Estimates of fits and draws: the work is that of the factors, extrapolated for many points."""

import json
from dataclasses import replace
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
    assert Factorization.from_data(X, 75).points == (1000, 2000)
    assert Factorization.from_data(np.repeat(X, 250, axis=1), 10).points == (375, 750)
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


GROWTH = (rates.Work(1e6, 1e8, 4e4), rates.Work(2.4e6, 4e8, 9e4))


@pytest.mark.parametrize(
    ("n", "d", "dimension", "options", "expected"),
    [
        (80, 15, 4.0, {"noise": "auto"},
         [.0056568, .001472, .006144, .13094, .14422, 1.2438e7, .003072, 1.237e7, .003072, 75520, 28115, 4.2799e5]),
        (81, 20, 4.0, {},
         [.0057633, .0004212, .0044616, 0, .010646, 1.2371e7, .00015743, 1.3172e7, .00062973, 76464, 28601, 4.3944e5]),
        (5000, 9, 4.0, {"n_neighbors": 12, "n_components": 3},
         [2.7951, .02612, 1.3236, 0, 4.1448, 9.6065e7, .17375, 3.1554e8, .69502, 6.64e6, 8.5108e6, 2.8034e9]),
        (5000, 16, 1.5, {"noise": "auto"},
         [2.7951, .093, 1.6638, 2.0374, 6.5894, 8.6284e7, .10734, 2.6364e8, .42936, 4.72e6, 7.0857e6, 1.5811e9]),
        (300, 300, 9.0, {"noise": "tangent"},
         [.041079, .01266, .030171, 0, .08391, 1.4295e7, .0008116, 1.7291e7, .0032464, 2.832e5, 1.3413e5, 4.782e6]),
        (700, 20, 4.0, {"neighborhoods": "adaptive"},
         [.14642, .00994, .099371, 0, .25573, 1.7984e7, .0040496, 3.2764e7, .016198, 6.608e5, 5.6277e5, 4.2974e7]),
        (5000, 9, 4.0, {"variant": "published", "covariance": "full", "max_iter": 7},
         [2.7951, .4405, 1.1714, 0, 4.407, 9.3825e7, 7.646, 3.1166e8, 9.2585, 4.72e6, 8.5108e6, 2.8034e9]),
        (5000, 9, 4.0, {"variant": "published", "method": "direct"},
         [2.7951, .0205, 1.1714, 0, 3.987, 9.3825e7, .75151, 3.1166e8, 1.232, 4.72e6, 8.5108e6, 2.8034e9]),
        (80, 4000, 4.0, {"variant": "published", "n_neighbors": 12, "covariance": "full-corrected"},
         [.0056568, .46111, .003072, 0, .46984, 1.9715e7, .003072, 1.2405e7, .003072, 1.056e5, 28115, 4.2799e5]),
        (5000, 20, 4.0, {"landmarks": 400},
         [.035775, .75124, .063246, .00208, .040718, 0, .89306, 2.1396e7,
          .0030381, 2.8302e7, .012153, 4.72e6, 2.5976e5, 1.3084e7]),
    ],
)  # fmt: skip
def test_figures_follow_from_sizes_and_parameters(
    n: int, d: int, dimension: float, options: Any, expected: list[float]
) -> None:
    """Of both sides of each choice: the seconds of the stages, the fit, the draws, and what they hold."""
    spec, growth = FitSpec(**{"n_neighbors": 10, **options}), Factorization((1000, 2000), GROWTH, dimension)
    figures = Estimate(n, d, spec, Search(1000, 0.25, 1.5), growth).figures()
    fit, draw, stages = figures["fit"], figures["draw"], figures["stages"]
    rest = [figures[name] for name in ("single_draw_seconds", "posterior_bytes", "factor_entries", "factor_flops")]
    found = [*stages.values(), fit["seconds"], fit["bytes"], draw["seconds"], draw["bytes"], *rest]
    assert found == pytest.approx(expected, rel=1e-4)


def test_pivoting_and_null_vectors_cost_with_points_and_classes() -> None:
    """Of draws from several closed classes, which the lanes do not solve."""
    assert rates.pivoting_seconds(5000, GROWTH[1]) == pytest.approx(2.5e-5 * 5000 + 0.4)
    assert rates.null_seconds(5000, GROWTH[1], 3) == pytest.approx(3 * 2.4e-3 + 4e-9 * 5000 * 9)
    assert rates.null_bytes(5000, 3) == 24 * 15_000


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
    flat = Search.from_data(X, spec)
    assert flat.at(1600) == flat.seconds == search_cost(X, 10).seconds
    assert flat.at(3200) / flat.seconds == pytest.approx(2**flat.exponent)
    assert 1 <= flat.exponent <= Search.from_data(np.random.default_rng(0).normal(size=(1600, 20)), spec).exponent <= 2
    assert Search.from_data(X[:30], spec).exponent == 2
    assert Search.from_data(X, rough).at(3200) > 2 * Search.from_data(X, rough).seconds


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
        assert rates.count_work(Pattern.from_neighbors(many)).entries > 100_000**2 / 4
        apart = np.stack([1 + rng.choice(699, 5, replace=False) for _ in range(700)])
        pattern = Pattern.from_neighbors(np.sort((np.arange(700)[:, None] + apart) % 700, axis=1).astype(np.int32))
    else:
        pattern = Pattern.from_neighbors(np.sort(kneighbors(cube(2 if kind == "sheet" else 5, 900), 8)[0], axis=1))
        pattern = pattern.order_for(DRAWS)[0] if kind == "sheet" else pattern
    work, structure = rates.count_work(pattern), pattern.structure
    assert work.entries == structure.lower_size + structure.upper_size
    width, below = np.diff(structure.first).astype(float), np.diff(structure.row_start)
    assert work.flops == pytest.approx((2 * width * (width**2 / 3 + width * below + below**2)).sum())
    assert structure.block_size <= work.scratch <= 2 * structure.block_size
