"""Statements: reliable where points differ, unreliable for noise, and a word for the user."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine.reliability.alignment import Alignment, rank_correlation, spearman_brown
from glle_engine.reliability.statements import (
    HIGH,
    MODERATE,
    movement_reliability,
    spread_reliability,
    state_movement,
    state_spread,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

rng = np.random.default_rng


def moving(sizes: NDArray[np.float64], count: int, kinds: int = 2, seed: int = 0) -> Alignment:
    """Return kinds of `count` normal embeddings in which point i has the standard deviation sizes[i]."""
    source = rng(seed)
    places = tuple(sizes[:, None] * source.standard_normal((count, len(sizes), 2)) for _ in range(kinds))
    return Alignment(np.zeros((len(sizes), 2)), places, (1.0,) * kinds)


@pytest.mark.parametrize(("state", "kinds"), [(spread_reliability, 2), (movement_reliability, 1)])
def test_points_that_differ_have_a_reliable_spread(state: Any, kinds: int) -> None:
    """The more embeddings, the more reliable; the reproducibility is that of 20, whatever their number."""
    sizes = np.exp(0.5 * rng(1).standard_normal(800))
    few, some, many = (state(moving(sizes, count, kinds)) for count in (6, 40, 400))
    assert few.reliability < some.reliability < many.reliability
    assert many.reliability > 0.98
    assert many.reproducibility == pytest.approx(some.reproducibility, abs=0.05)
    assert many.level == "high"
    for one in (few, some, many):
        assert one.ceiling == pytest.approx(np.sqrt(one.reliability))
        assert json.loads(json.dumps(one.to_dict(), allow_nan=False)) == one.to_dict()


def test_the_correction_foretells_the_correlation_of_two_sets() -> None:
    """Spearman and Brown: of two ensembles of the same size, and of two sets of twenty half-samples."""
    sizes = np.exp(0.3 * rng(2).standard_normal(2000))
    spreads = [
        np.sqrt(sum(kind.var(axis=0, ddof=1).sum(axis=1) for kind in moving(sizes, 12, seed=seed).kinds))
        for seed in (3, 4)
    ]
    found = spread_reliability(moving(sizes, 12, seed=3)).reliability
    assert found == pytest.approx(rank_correlation(*spreads), abs=0.05)
    twenty = [np.sqrt(moving(sizes, 20, 1, seed).kinds[0].var(axis=0, ddof=1).sum(axis=1)) for seed in (5, 6)]
    reproducible = movement_reliability(moving(sizes, 40, 1)).reproducibility
    assert reproducible == pytest.approx(rank_correlation(*twenty), abs=0.05)


def test_noise_has_no_reliable_spread() -> None:
    """If all points move alike, nothing can be ranked, and the reason says so."""
    found = spread_reliability(moving(np.ones(2000), 40), saturated=True)
    assert found.reliability < 0.1
    assert abs(found.agreement) < 0.1
    assert found.level == "low"
    assert "saturated" in found.reason
    assert [note.code for note in found.notes] == ["spread-unreliable"]
    assert movement_reliability(moving(np.ones(100), 40, 1)).reason.startswith("Do not rank points")


def test_a_constant_spread_has_no_order() -> None:
    """A correlation with a constant is 0: the word is low, without NaN."""
    still = np.zeros((8, 30, 2))
    half = Alignment(still[0], (still, rng(0).standard_normal((8, 30, 2))), (1.0, 1.0))
    found = spread_reliability(half)
    assert (found.agreement, found.expected, found.level) == (0.0, 0.0, "low")
    assert movement_reliability(Alignment(still[0], (still,), (1.0,))).level == "low"


@pytest.mark.parametrize(
    ("value", "level"), [(HIGH + 0.01, "high"), (HIGH - 0.01, "moderate"), (MODERATE - 0.01, "low"), (0.0, "low")]
)
def test_the_word_follows_the_expected_correlation(value: float, level: str) -> None:
    """Each word has a reason with the figures; only low is a warning."""
    found = state_spread(0.95, 0.9, value**2 / 0.9)
    assert found.level == level == state_movement(0.95, value).level
    assert f"{value**2 / 0.9:.2f}" in found.reason
    assert "0.90" in found.reason
    assert bool(found.notes) == (level == "low")
    assert found.expected == pytest.approx(value)
    assert f"{value:.2f}" in state_movement(0.95, value).reason


def test_further_sentences() -> None:
    """Too few embeddings, disagreement, and a seed that explains most of the variance."""
    assert "would help" not in state_spread(0.95, 0.9, 0.9).reason + state_movement(0.95, 0.9).reason
    assert "More draws and resamples would help" in state_spread(0.5, 0.9, 0.9).reason
    assert "More half-samples would help" in state_movement(0.8, 0.9).reason
    assert (state_spread(0.99, 0.9, -0.5).expected, state_spread(0.99, 0.9, -0.5).level) == (0.0, "low")
    by_seed = state_movement(0.99, 0.95, 0.7)
    assert (by_seed.level, state_movement(0.5, 0.3, 0.7).level) == ("moderate", "low")
    assert "70% of the variance is that of the seed" in by_seed.reason


def test_corrections_for_the_number_of_embeddings() -> None:
    """Twice as many, half as many, and back; no reliability below 0."""
    assert spearman_brown(0.5, 2) == pytest.approx(2 / 3)
    assert spearman_brown(spearman_brown(0.3, 5), 0.2) == pytest.approx(0.3)
    assert spearman_brown(0.0, 3) == spearman_brown(-0.4, 3) == 0.0
