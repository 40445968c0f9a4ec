"""The ensemble spread: exact on normal embeddings of known covariance, equal in shards, honest about misuse."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import Posterior, fit, manifolds
from glle_engine.base.errors import DataMismatchError, InvalidParameterError
from glle_engine.reliability import calibration
from glle_engine.reliability import ensemble as ensembles
from glle_engine.reliability.calibration import Calibration, calibrate
from glle_engine.reliability.ensemble import combine, ensemble
from glle_engine.reliability.resamples import STREAMS, PosteriorEmbedder, resample

N = 500


def normal(counts: tuple[int, int, int, int], *, seed: int = 0) -> tuple[list[NDArray[np.float64]], Any, Any]:
    """Return stacks of normal embeddings around a reference (n, 2) such that all estimate the same covariances."""
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal((N, 2))
    roots = 0.05 * np.exp(0.7 * rng.standard_normal((N, 1, 1))) * rng.standard_normal((N, 2, 2))
    stacks = [reference + np.einsum("nij,mnj->mni", roots, rng.standard_normal((m, N, 2))) for m in counts]
    return stacks, reference, roots @ roots.transpose(0, 2, 1)


def test_the_covariance_of_normal_embeddings_is_found() -> None:
    """Each part estimates the known spread, and regions and reliability follow: nothing has to be believed."""
    stacks, reference, truth = normal((200, 150, 150, 150))
    result = combine(stacks[0], stacks[1:], reference)
    spread = np.sqrt(np.trace(truth, axis1=1, axis2=2))
    for part in ("spread", "draw_spread", "half_sample_spread", "random_k_spread", "larger_sample_spread"):
        assert np.median(getattr(result, part) / spread) == pytest.approx(1, abs=0.03), part
    np.testing.assert_allclose(result.consensus, reference, atol=0.1)
    np.testing.assert_allclose(np.trace(result.covariance, axis1=1, axis2=2), result.spread**2)
    parts = [value for name, value in result.arrays().items() if name.endswith("_spread")]
    np.testing.assert_allclose((np.stack(parts) ** 2).mean(axis=0), result.spread**2)
    assert result.reliability.level == "high"
    assert (result.n_draws, result.n_resamples) == (200, 150)


def test_orientation_and_order_of_the_embeddings_do_not_matter() -> None:
    """Spreads do not see a rotation of any embedding, nor their order; the covariance turns with the reference."""
    stacks, reference, _ = normal((12, 9, 8, 7))
    rng = np.random.default_rng(5)
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    mixed = [np.stack([place @ np.linalg.qr(rng.standard_normal((2, 2)))[0] for place in stack]) for stack in stacks]
    plain, turned = combine(stacks[0], stacks[1:], reference), combine(mixed[0], mixed[1:], reference @ turn)
    reverse = combine(stacks[0][::-1], [stack[::-1] for stack in stacks[1:]], reference)
    for other in (turned, reverse):
        np.testing.assert_allclose(other.spread, plain.spread, rtol=1e-6)
    np.testing.assert_allclose(turned.consensus, plain.consensus @ turn, atol=1e-7)
    np.testing.assert_allclose(turned.covariance, turn.T @ plain.covariance @ turn, atol=1e-9)
    np.testing.assert_allclose(turned.regions.radii, plain.regions.radii, rtol=1e-6)


def test_half_samples_that_break_down_are_noted() -> None:
    """If half-samples spread more than the jackknife foresees, the spread is only an upper bound."""
    stacks, reference, _ = normal((20, 20, 20, 20))
    assert not [note for note in combine(stacks[0], stacks[1:], reference).notes if note.code == "resamples-unstable"]
    wild = reference + 2 * (stacks[1] - reference)
    noted = combine(stacks[0], [wild, *stacks[2:]], reference).notes
    assert [note.code for note in noted if "2 times" in note.message] == ["resamples-unstable"]


def test_shards_give_the_bits_of_one_computation(
    sheet: NDArray[np.float64], posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams in ranges and draws at the calibrated scale, put together, are the ensemble, which computes each once."""
    reports: list[str] = []
    computed: list[int] = []

    def resample_and_record(*arguments: Any, **options: Any) -> Any:
        computed.append(arguments[1])
        return resample(*arguments, **options)

    embed = PosteriorEmbedder.from_posterior(posterior, sheet)
    shards = [
        (resample(embed, 1, stream=stream) + resample(embed, 5, first=1, stream=stream)).places for stream in STREAMS
    ]
    for module in (ensembles, calibration):
        monkeypatch.setattr(module, "HALF_SAMPLES", 6)
        monkeypatch.setattr(module, "resample", resample_and_record)
    whole = ensemble(posterior, sheet, n_draws=8, n_resamples=6, on_progress=lambda *a: reports.append(a[2]))
    assert computed == [6, 6, 6]
    assert whole.calibration is not None
    assert whole.calibration.scale == calibrate(posterior, sheet, n_resamples=6).scale, "whatever is drawn"
    searched, shared = (calibrate(posterior, sheet, n_resamples=4, halves=given) for given in (None, shards[0]))
    assert shared.half_sample_spread.tobytes() == searched.half_sample_spread.tobytes()
    draws = np.stack([draw.embedding for draw in posterior.draws(8, scale=whole.calibration.scale)])
    parts = combine(draws, shards, posterior.embedding, saturated=whole.calibration.saturated)
    for name, array in parts.arrays().items():
        assert array.tobytes() == whole.arrays()[name].tobytes(), name
        assert len(array) == 400
    alone = posterior.summary(8, scale=whole.calibration.scale)
    np.testing.assert_array_equal(whole.arrays()["stability"], alone.stability)
    assert (whole.regions.radii, whole.reliability) == (parts.regions.radii, parts.reliability)
    assert whole.notes == parts.notes + whole.calibration.notes
    streams = {stream.name for stream in STREAMS}
    assert {*reports} == streams | {"calibration", "drawing", "consensus", "regions", "reliability", "stability"}
    assert json.loads(json.dumps(whole.to_dict(), allow_nan=False)) == whole.to_dict()


def test_misuse_is_refused_with_the_remedy(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Too few resamples and other data."""
    with pytest.raises(InvalidParameterError, match="n_resamples=3"):
        ensemble(posterior, sheet, n_resamples=3)
    with pytest.raises(DataMismatchError):
        ensemble(posterior, sheet[::-1])


def test_the_calibrated_scale_matches_half_sampling() -> None:
    """At the scale found, the median spread is that of half-samples within a third; the trace shows the way."""
    X = manifolds.make("swiss_roll", 1000, noise=0.005, seed=1).X
    reports: list[str] = []
    result = calibrate(fit(X), X, n_resamples=10, n_draws=20, on_progress=lambda *a: reports.append(a[2]))
    assert result.scale in [scale for scale, _ in result.trace]
    assert abs(np.log(result.ratio)) == min(abs(np.log(ratio)) for _, ratio in result.trace)
    assert result.saturated or 0.67 < result.ratio < 1.5
    assert np.median(result.draw_spread) / np.median(result.half_sample_spread) == pytest.approx(result.ratio)
    assert -1 <= result.rank_correlation <= 1
    assert set(reports) == {"half-samples", "calibration"}
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()


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
    results = [calibrate(posterior, wide, n_resamples=8, n_draws=10, seed=seed) for seed in range(3)]
    assert np.median([result.scale for result in results]) > 1
    errors = np.abs(np.log([(result.ratio, result.trace[0][1]) for result in results]))
    assert np.median(errors[:, 0]) < np.median(errors[:, 1])


def test_what_cannot_be_calibrated(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Published posteriors, and half-samples or draws that do not move, are refused with the remedy."""
    with pytest.raises(InvalidParameterError, match="constrained"):
        calibrate(fit(sheet, variant="published"), sheet)
    still = np.broadcast_to(posterior.embedding, (4, *posterior.embedding.shape))
    with pytest.raises(InvalidParameterError, match="median spread of half-samples is 0"):
        calibrate(posterior, sheet, n_resamples=4, n_draws=4, halves=still)
