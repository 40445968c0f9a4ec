"""Reliability: near 1 where points differ, near 0 for noise, and a word for the user."""

from __future__ import annotations

import json

import numpy as np
import pytest

from glle_engine.posterior.spread.reliability import HIGH, MODERATE, corrected, reliability, stated


def stacks(sizes: np.ndarray[tuple[int, ...], np.dtype[np.float64]], count: int, seed: int = 0) -> list[np.ndarray]:
    """Return two kinds of `count` normal embeddings in which point i has the standard deviation sizes[i]."""
    rng = np.random.default_rng(seed)
    return [sizes[:, None] * rng.standard_normal((count, len(sizes), 2)) for _ in range(2)]


def test_points_that_differ_have_a_reliable_spread() -> None:
    """The more embeddings, the nearer to 1; the ceiling is its root."""
    sizes = np.exp(0.5 * np.random.default_rng(1).standard_normal(400))
    found = [reliability(stacks(sizes, count), [1.0, 1.0]) for count in (6, 40, 400)]
    assert found[0].reliability < found[1].reliability < found[2].reliability
    assert found[2].reliability > 0.98
    assert found[2].agreement > 0.9
    assert found[2].reproducibility == pytest.approx(found[1].reproducibility, abs=0.05), "whatever their number"
    assert found[2].level == "high"
    for one in found:
        assert one.ceiling == pytest.approx(np.sqrt(one.reliability))


def test_the_correction_foretells_the_correlation_of_two_ensembles() -> None:
    """Spearman and Brown: the reliability is the correlation of the spreads of two ensembles of the same size."""
    sizes = np.exp(0.3 * np.random.default_rng(2).standard_normal(2000))
    first, second = stacks(sizes, 12, seed=3), stacks(sizes, 12, seed=4)
    spreads = [np.sqrt(sum(stack.var(axis=0, ddof=1).sum(axis=1) for stack in each)) for each in (first, second)]
    assert reliability(first, [1.0, 1.0]).reliability == pytest.approx(np.corrcoef(*spreads)[0, 1], abs=0.05)


def test_noise_has_no_reliable_spread() -> None:
    """If all points move alike, nothing can be ranked, and the note says so."""
    found = reliability(stacks(np.ones(2000), 40), [1.0, 1.0], saturated=True)
    assert found.reliability < 0.1
    assert abs(found.agreement) < 0.1
    assert found.level == "low"
    assert "saturated" in found.reason
    assert [note.code for note in found.notes] == ["spread-unreliable"]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()


def test_a_constant_spread_is_no_agreement() -> None:
    """A correlation with a constant does not exist: the statement is low, without NaN."""
    still = [np.zeros((8, 30, 2)), np.random.default_rng(0).standard_normal((8, 30, 2))]
    found = reliability(still, [1.0, 1.0])
    assert (found.agreement, found.expected, found.level) == (0.0, 0.0, "low")


@pytest.mark.parametrize(
    ("expected", "level"), [(HIGH + 0.01, "high"), (HIGH - 0.01, "moderate"), (MODERATE - 0.01, "low"), (0.0, "low")]
)
def test_the_word_follows_the_expected_correlation(expected: float, level: str) -> None:
    """Each word has a reason with the figures; only low is a warning."""
    found = stated(0.95, 0.9, expected**2 / 0.9)
    assert found.level == level
    assert f"{expected**2 / 0.9:.2f}" in found.reason
    assert "0.90" in found.reason
    assert bool(found.notes) == (level == "low")
    assert found.expected == pytest.approx(expected)
    assert "More draws" not in found.reason
    assert "More draws" in stated(0.5, 0.9, 0.9).reason


def test_draws_against_resamples() -> None:
    """Ranks that disagree are worth nothing, in whatever number they are estimated."""
    found = stated(0.99, 0.9, -0.5)
    assert (found.expected, found.level) == (0.0, "low")


def test_corrections_for_the_number_of_embeddings() -> None:
    """Twice as many, half as many, and back; no reliability below 0."""
    assert corrected(0.5, 2) == pytest.approx(2 / 3)
    assert corrected(corrected(0.3, 5), 0.2) == pytest.approx(0.3)
    assert corrected(0.0, 3) == corrected(-0.4, 3) == 0.0


def test_order_and_progress() -> None:
    """Every split is reported; the result is a pure function of the embeddings."""
    reports: list[tuple[int, int, str]] = []
    given = stacks(np.linspace(0.5, 2, 50), 7)
    first = reliability(given, [1.0, 1.0], on_progress=lambda *a: reports.append(a))
    assert first == reliability(given, [1.0, 1.0])
    assert reports[-1] == (len(reports), len(reports), "reliability")
