"""The cost of draws of a posterior: the work is that of its factors."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import fit
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg import LANES
from glle_engine.posterior.draw_cost import (
    BASE_BYTES,
    Work,
    count_work,
    draw_cost,
    fallback_seconds,
    null_bytes,
    null_seconds,
    pivoting_seconds,
    posterior_bytes,
)
from glle_engine.posterior.fit import EXPECTED_DRAWS


def cube(dimension: int, n: int, features: int = 8) -> NDArray[np.float64]:
    """Return a smooth map of n points of the unit cube."""
    rng = np.random.default_rng(dimension)
    points = rng.random((n, dimension))
    linear, frequencies = rng.standard_normal((2, dimension, features))
    return np.asarray(points @ linear + np.sin(points @ frequencies + rng.random(features)))


GROWTH = (Work(1e6, 1e8, 4e4), Work(2.4e6, 4e8, 9e4))


def test_pivoting_and_null_vectors_cost_with_points_and_classes() -> None:
    """Of draws from several closed classes, which the lanes do not solve."""
    assert pivoting_seconds(5000, GROWTH[1]) == pytest.approx(2.5e-5 * 5000 + 0.4)
    assert null_seconds(5000, GROWTH[1], 3) == pytest.approx(3 * 2.4e-3 + 4e-9 * 5000 * 9)
    assert null_bytes(5000, 3) == 24 * 15_000


def test_bytes_cover_the_arrays_of_draws() -> None:
    """The workspace of four lanes and the arrays of the posterior are within the cost; alone, three lanes are idle."""
    posterior = fit(cube(5, 1500), n_neighbors=10)
    cost, distribution = draw_cost(posterior), posterior.distribution
    structure = posterior.eigenproblem.pattern.structure
    lanes = 8 * LANES * (structure.lower_size + structure.upper_size + structure.block_size)
    held = sum(
        array.nbytes for array in (distribution.mean, distribution.factor, posterior.neighbors, posterior.embedding)
    )
    assert posterior_bytes(1500, posterior.spec) == pytest.approx(held, rel=0.05)
    assert lanes + held < cost.bytes < 2 * (lanes + held) + BASE_BYTES
    assert cost.seconds == pytest.approx(LANES * cost.each_seconds)


@pytest.mark.parametrize("options", [{}, {"landmarks": 200}, {"variant": "published"}])
def test_the_cost_of_draws_grows_with_the_fill(options: dict[str, Any]) -> None:
    """More dimensions have more fill; landmarks cost less than all points."""
    cost = draw_cost(fit(cube(2, 600), **options))
    assert draw_cost(fit(cube(5, 600), **options)).seconds > 1.1 * cost.seconds
    assert draw_cost(fit(cube(2, 600), landmarks=100)).seconds < cost.seconds


def test_published_draws_cost_what_other_solvers_than_the_lanes_take() -> None:
    """Refined draws cost more than constrained ones, singular ones much more; alone, only the lanes are idle."""
    X, options = cube(3, 600, 6), {"n_neighbors": 10, "variant": "published"}
    given: Any = options
    kept, refined, singular, regular = (
        fit(X, n_neighbors=10), fit(X, **given, method="direct"), fit(X, **given), fit(cube(3, 600, 12), **given),
    )  # fmt: skip
    each = [draw_cost(posterior).each_seconds for posterior in (kept, refined, singular, regular)]
    assert 2 * each[0] < each[1] < each[2] / 4
    assert each[3] < each[2] / 4, "with more features than neighbors B has full rank"
    for posterior in (refined, singular):
        fallback = fallback_seconds(600, count_work(posterior.eigenproblem.pattern), posterior.spec, 6)
        cost = draw_cost(posterior)
        assert cost.seconds == pytest.approx(LANES * (cost.each_seconds - fallback) + fallback)


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
        assert count_work(Pattern.from_neighbors(many)).entries > 100_000**2 / 4
        apart = np.stack([1 + rng.choice(699, 5, replace=False) for _ in range(700)])
        pattern = Pattern.from_neighbors(np.sort((np.arange(700)[:, None] + apart) % 700, axis=1).astype(np.int32))
    else:
        pattern = Pattern.from_neighbors(np.sort(kneighbors(cube(2 if kind == "sheet" else 5, 900), 8)[0], axis=1))
        pattern = pattern.order_for(EXPECTED_DRAWS)[0] if kind == "sheet" else pattern
    work, structure = count_work(pattern), pattern.structure
    assert work.entries == structure.lower_size + structure.upper_size
    width, below = np.diff(structure.first).astype(float), np.diff(structure.row_start)
    assert work.flops == pytest.approx((2 * width * (width**2 / 3 + width * below + below**2)).sum())
    assert structure.block_size <= work.scratch <= 2 * structure.block_size
