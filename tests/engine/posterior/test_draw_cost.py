"""The predicted cost of draws follows the size of a posterior's factors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import fit
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg import LANES
from glle_engine.posterior.draw_cost import BASE_BYTES, count_work, draw_cost, fallback_seconds, posterior_bytes
from glle_engine.posterior.fit import EXPECTED_DRAWS
from tests.engine.conftest import linked_clusters


def cube(dimension: int, n: int, features: int = 8) -> NDArray[np.float64]:
    """Return a smooth image (n, features) of n random points of a cube."""
    rng = np.random.default_rng(dimension)
    points = rng.random((n, dimension))
    linear, frequencies = rng.standard_normal((2, dimension, features))
    return np.asarray(points @ linear + np.sin(points @ frequencies + rng.random(features)))


def test_bytes_cover_the_arrays_of_draws() -> None:
    """The predicted bytes cover the work arrays of four draws; a single draw takes the seconds of four."""
    posterior = fit(cube(5, 1500), n_neighbors=10)
    cost, distribution = draw_cost(posterior), posterior.distribution
    structure = posterior.eigenproblem.pattern.structure
    lanes = 8 * LANES * (structure.lower_size + structure.upper_size + structure.block_size)
    held = sum(
        array.nbytes for array in (distribution.mean, distribution.factor, posterior.neighbors, posterior.embedding)
    )
    assert posterior_bytes(1500, posterior.spec) == pytest.approx(held, rel=0.05)
    assert lanes + held < cost.bytes - BASE_BYTES < 2 * (lanes + held)
    assert cost.seconds == pytest.approx(LANES * cost.each_seconds)


@pytest.mark.parametrize("options", [{}, {"landmarks": 200}, {"variant": "published"}])
def test_the_cost_of_draws_grows_with_the_fill(options: dict[str, Any]) -> None:
    """Data of more dimensions cost more, and landmarks cost less than all points."""
    cost = draw_cost(fit(cube(2, 600), **options))
    assert draw_cost(fit(cube(5, 600), **options)).seconds > 1.1 * cost.seconds
    assert draw_cost(fit(cube(2, 600), landmarks=100)).seconds < cost.seconds


def test_published_draws_cost_what_other_solvers_than_the_lanes_take() -> None:
    """Published draws cost more than constrained ones, and much more if I - W is singular."""
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
    """With several closed classes, draws are solved one by one, with pivoting and null vectors."""
    posterior = fit(linked_clusters(), n_neighbors=6, disconnected="error")
    assert len(posterior.pins) == 2
    cost, of_one_class = draw_cost(posterior), draw_cost(replace(posterior, pins=posterior.pins[:1]))
    assert cost.each_seconds == cost.seconds
    n, work = posterior.n_points, count_work(posterior.eigenproblem.pattern)
    further = 2.5e-5 * n + 1e-9 * (work.flops + 2 * work.entries) + 4e-9 * n * 4
    assert cost.seconds - of_one_class.seconds == pytest.approx(further)
    assert cost.bytes - of_one_class.bytes == 24 * n * 2
    assert cost.to_dict().keys() == {"seconds", "each_seconds", "bytes"}


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
