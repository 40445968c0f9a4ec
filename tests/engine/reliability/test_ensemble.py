"""The ensemble spread: exact on normal embeddings of known covariance, equal in shards, honest about misuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import fit
from glle_engine.base.errors import DataMismatchError, InvalidParameterError
from glle_engine.reliability import calibration
from glle_engine.reliability import ensemble as ensembles
from glle_engine.reliability.calibration import calibrate
from glle_engine.reliability.embedders import PosteriorEmbedder
from glle_engine.reliability.ensemble import combine, ensemble
from glle_engine.reliability.resamples import STREAMS, resample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior

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


def test_shards_give_the_bits_of_one_computation(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Streams in ranges and the draws at the calibrated scale, put together, are the ensemble of a posterior."""
    reports: list[str] = []
    whole = ensemble(posterior, sheet, n_draws=8, n_resamples=6, on_progress=lambda *a: reports.append(a[2]))
    embed = PosteriorEmbedder.of(posterior, sheet)
    shards = [
        (resample(embed, 1, stream=stream) + resample(embed, 5, first=1, stream=stream)).places for stream in STREAMS
    ]
    scale = calibrate(posterior, sheet).scale
    draws = np.stack([draw.embedding for draw in posterior.draws(8, scale=scale)])
    assert whole.calibration is not None
    assert whole.calibration.scale == scale, "one number, whatever is drawn"
    parts = combine(draws, shards, posterior.embedding, saturated=whole.calibration.saturated)
    for name, array in whole.arrays().items():
        assert array.tobytes() == parts.arrays()[name].tobytes(), name
    assert (whole.regions.radii, whole.reliability) == (parts.regions.radii, parts.reliability)
    assert whole.notes[: len(parts.notes)] == parts.notes
    assert whole.notes[len(parts.notes) :] == whole.calibration.notes
    assert {stream.name for stream in STREAMS} | {"calibration", "drawing", "consensus", "regions", "reliability"} == {
        *reports
    }
    assert json.loads(json.dumps(whole.to_dict(), allow_nan=False)) == whole.to_dict()
    assert {name: array.shape[0] for name, array in whole.arrays().items()} == dict.fromkeys(whole.arrays(), 400)


def test_half_samples_serve_the_calibration(
    sheet: NDArray[np.float64], posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many half-samples as the calibration has, none is computed twice."""
    computed: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        computed.append(arguments[1])
        return resample(*arguments, **options)

    for module in (ensembles, calibration):
        monkeypatch.setattr(module, "HALF_SAMPLES", 4)
        monkeypatch.setattr(module, "resample", counted)
    ensemble(posterior, sheet, n_draws=4, n_resamples=4)
    assert computed == [4, 4, 4]


def test_misuse_is_refused_with_the_remedy(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Too few resamples, other data and posteriors without a calibration."""
    with pytest.raises(InvalidParameterError, match="n_resamples=3"):
        ensemble(posterior, sheet, n_resamples=3)
    with pytest.raises(DataMismatchError):
        ensemble(posterior, sheet[::-1])
    with pytest.raises(InvalidParameterError, match="constrained"):
        ensemble(fit(sheet, variant="published"), sheet)
