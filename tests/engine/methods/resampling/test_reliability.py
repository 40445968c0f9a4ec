"""Reliability of the movement of any method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle_engine.methods.resampling.reliability import reliability, stated
from glle_engine.posterior.spread.calibration import rank_correlation
from glle_engine.posterior.spread.reliability import HIGH, MODERATE

if TYPE_CHECKING:
    from numpy.typing import NDArray


def moving(spreads: NDArray[np.float64], m: int, seed: int = 0) -> NDArray[np.float64]:
    """Return m embeddings (m, n, 2) of points that move by independent normal steps of these sizes."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, len(spreads), 2)) * spreads[:, None]


def test_points_that_differ_are_ranked() -> None:
    """Spreads over two decades rank points, equal spreads do not, and the reason says so."""
    high = reliability(moving(np.logspace(-1, 1, 100), 40))
    assert high.level == "high"
    assert high.reproducibility > HIGH
    assert high.reason.startswith("Half-samples rank points alike")
    low = reliability(moving(np.ones(100), 40))
    assert low.level == "low"
    assert low.reproducibility < MODERATE
    assert low.reason.startswith("Do not rank points")


def test_reproducibility_does_not_depend_on_the_number_of_half_samples() -> None:
    """That of 20 half-samples from 20 agrees with that from 160; the reliability grows with their number."""
    spreads = np.exp(np.random.default_rng(3).normal(scale=0.25, size=2000))
    few, many = (reliability(moving(spreads, m)) for m in (20, 160))
    assert few.reproducibility == pytest.approx(many.reproducibility, abs=0.08)
    assert few.reliability == pytest.approx(few.reproducibility, abs=1e-12), "20 are 20"
    assert many.reliability > few.reliability + 0.1
    assert many.ceiling == pytest.approx(np.sqrt(many.reliability))


def test_reproducibility_is_the_correlation_of_two_sets_of_twenty() -> None:
    """The corrected correlation of halves is that of two independent sets."""
    spreads = np.exp(np.random.default_rng(4).normal(scale=0.4, size=3000))
    first, second = (np.sqrt(moving(spreads, 20, seed).var(axis=0, ddof=1).sum(axis=1)) for seed in (1, 2))
    direct = rank_correlation(first, second)
    assert reliability(moving(spreads, 40)).reproducibility == pytest.approx(direct, abs=0.05)


def test_a_seed_that_explains_most_is_said() -> None:
    """The word is then at best moderate."""
    assert stated(0.99, 0.95).level == "high"
    by_seed = stated(0.99, 0.95, 0.7)
    assert (by_seed.level, stated(0.5, 0.3, 0.7).level) == ("moderate", "low")
    assert "70% of the variance is that of the seed" in by_seed.reason
    assert "More half-samples would help" in stated(0.8, 0.9).reason


def test_fixed_points_have_no_order() -> None:
    """Constant movement has no rank correlation, and is low."""
    assert reliability(np.zeros((8, 10, 2))).level == "low"
