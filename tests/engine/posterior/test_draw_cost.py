"""The predicted cost of draws follows the size of a posterior's factors."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import FitSpec, fit
from glle_engine.eigen.pattern import Pattern
from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg import LANES
from glle_engine.posterior.draw_cost import BASE_BYTES, Work, count_work, draw_cost, draw_seconds, posterior_bytes
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


PUBLISHED = {"n_neighbors": 10, "variant": "published"}


@pytest.mark.parametrize(
    ("X", "options", "seconds", "each_seconds", "nbytes"),
    [
        (cube(5, 1500), {"n_neighbors": 10}, 8.30474746e-3, 2.07618686e-3, 27_326_035),
        (cube(2, 600), {}, 1.00433818e-3, 2.51084544e-4, 14_419_944),
        (cube(2, 600), {"landmarks": 200}, 7.92190197e-4, 1.98047549e-4, 13_397_169),
        (cube(3, 600, 6), PUBLISHED, 3.89079523e-2, 2.12535431e-2, 15_522_915),  # I - W is singular
        (cube(3, 600, 6), {**PUBLISHED, "method": "direct"}, 4.04477466e-3, 3.03665746e-3, 15_522_915),
        (cube(2, 70), {}, 2.058e-3, 2.058e-3, 12_149_310),  # dense
        (linked_clusters(), {"n_neighbors": 6, "disconnected": "error"}, 4.28818477e-3, 4.28818477e-3, 12_432_977),
    ],
)
def test_a_posterior_has_the_same_cost_on_every_machine(
    X: NDArray[np.float64], options: Any, seconds: float, each_seconds: float, nbytes: int
) -> None:
    """The cost of each kind of draws follows from the constants that were measured once, and from the posterior."""
    cost = draw_cost(fit(X, **options))
    assert cost == pytest.approx((seconds, each_seconds, nbytes), rel=1e-8)
    assert cost.to_dict() == {name: float(f"{value:.3g}") for name, value in cost._asdict().items()}


def test_factors_beyond_the_cache_take_longer() -> None:
    """Entries of the factors that do not fit in the shared cache are read from memory."""
    seconds = [draw_seconds(5000, Work(entries, 4e8, 9e4), FitSpec(n_neighbors=10), 8) for entries in (1e6, 2e6)]
    assert seconds == pytest.approx([0.019104, 0.027004])


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
