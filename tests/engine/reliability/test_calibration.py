"""Half-sampling, and the scale it suggests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.base.errors import InvalidParameterError
from glle_engine.reliability.calibration import Calibration, calibrate
from glle_engine.reliability.embedders import PosteriorEmbedder
from glle_engine.reliability.resamples import resample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def test_the_calibrated_scale_matches_half_sampling() -> None:
    """At the scale found, the median spread is that of half-samples within a third; the trace shows the way."""
    X = manifolds.make("swiss_roll", 1000, noise=0.005, seed=1).X
    reports: list[str] = []
    result = calibrate(fit(X), X, n_half_samples=10, n_draws=20, on_progress=lambda *a: reports.append(a[2]))
    assert result.scale in [scale for scale, _ in result.trace]
    assert abs(np.log(result.ratio)) == min(abs(np.log(ratio)) for _, ratio in result.trace)
    assert result.saturated or 0.67 < result.ratio < 1.5
    assert np.median(result.draw_spread) / np.median(result.half_sample_spread) == pytest.approx(result.ratio)
    assert -1 <= result.rank_correlation <= 1
    assert set(reports) == {"half-samples", "calibration"}
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
    assert set(result.to_dict()) == {
        *("scale", "ratio", "rank_correlation", "slope", "saturated", "trace", "notes"),
    }


@pytest.mark.parametrize(
    ("ratio", "correlation", "saturated", "codes"),
    [
        (1.05, 0.8, False, []),
        (1.6, 0.8, True, ["scale-saturated"]),
        (1.6, 0.8, False, ["scale-not-matched"]),
        (0.95, 0.3, False, ["scale-poorly-correlated"]),
        (0.5, -0.1, True, ["scale-saturated", "scale-poorly-correlated"]),
    ],
)
def test_a_doubtful_scale_is_noted(ratio: float, correlation: float, saturated: bool, codes: list[str]) -> None:  # noqa: FBT001
    """Each reason for doubt is a note with its number; a trustworthy scale has none."""
    one = np.ones(3)
    slope = 0.05 if saturated else 0.5
    result = Calibration(2.5, ratio, correlation, slope, saturated, one, one, ((1.0, 2.0), (2.5, ratio)))
    assert [note["code"] for note in result.to_dict()["notes"]] == codes
    for note in result.notes:
        assert "2.5" in note.message
        assert f"{correlation:.2f}" in note.message or f"{ratio:.2g} times" in note.message


def test_a_posterior_that_is_too_narrow_is_widened(wide: NDArray[np.float64]) -> None:
    """Dirichlet is far too narrow with many features: calibration moves the scale up, towards ratio 1."""
    posterior = fit(wide, variance="dirichlet")
    results = [calibrate(posterior, wide, n_half_samples=8, n_draws=10, seed=seed) for seed in range(5)]
    assert np.median([result.scale for result in results]) > 1
    errors = np.abs(np.log([(result.ratio, result.trace[0][1]) for result in results]))
    assert np.median(errors[:, 0]) < np.median(errors[:, 1])


def test_given_half_samples_are_not_computed_again(
    sheet: NDArray[np.float64], posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them give the bits of a calibration alone."""
    halves = resample(PosteriorEmbedder.of(posterior, sheet), 6).places
    alone = calibrate(posterior, sheet, n_half_samples=4, n_draws=4)
    monkeypatch.delattr("glle_engine.reliability.calibration.resample")
    shared = calibrate(posterior, sheet, n_half_samples=4, n_draws=4, halves=halves)
    assert shared.trace == alone.trace
    assert shared.half_sample_spread.tobytes() == alone.half_sample_spread.tobytes()


def test_what_cannot_be_calibrated(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Published posteriors, and half-samples or draws that do not move, are refused with the remedy."""
    with pytest.raises(InvalidParameterError, match="constrained"):
        calibrate(fit(sheet, variant="published"), sheet)
    still = np.broadcast_to(posterior.embedding, (4, *posterior.embedding.shape))
    with pytest.raises(InvalidParameterError, match="median spread of half-samples is 0"):
        calibrate(posterior, sheet, n_half_samples=4, n_draws=4, halves=still)
