"""Invariance of fits: units up to the largest double, translations, orders of points, duplicates, training data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine import Posterior, fit, load
from glle_engine.base.errors import DataMismatchError, DegenerateDataError, OutOfRangeError
from glle_engine.base.validation import digest
from glle_engine.reliability.calibration import calibrate
from glle_engine.reliability.embedders import PosteriorEmbedder
from glle_engine.reliability.resamples import resample
from tests.engine.conftest import bent_sheet
from tests.engine.eigen.dense_reference import angle

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CLOSE = 1e-6  # the tangent mean has precisions of condition 1e9
LAWS: dict[str, dict[str, Any]] = {
    "em": {},
    "direct": {"method": "direct"},
    "ml": {"variance": "ml"},
    "tangent": {"noise": "tangent"},
    "adaptive": {"neighborhoods": "adaptive", "n_neighbors": 12},
}
SHEET = bent_sheet(250)
FITTED = {name: fit(SHEET, **options) for name, options in LAWS.items()}


def require_same_bits(before: Posterior, after: Posterior) -> None:
    """Compare every array, and a draw, bit by bit."""
    for name, array in before.arrays().items():
        assert after.arrays()[name].tobytes() == array.tobytes(), name
    assert after.draw(731, seed=1).embedding.tobytes() == before.draw(731, seed=1).embedding.tobytes()


@settings(max_examples=25)
@given(exponent=st.integers(-900, 900), law=st.sampled_from(sorted(LAWS)))
def test_powers_of_two_change_no_bit(exponent: int, law: str) -> None:
    """The law, the reference and draws of X 2^j have the bits of those of X; new points land where they did."""
    X = np.ldexp(SHEET, exponent)
    after = fit(X, **LAWS[law])
    require_same_bits(FITTED[law], after)
    new = SHEET[:3] + 0.25
    placed, expected = after.extend(X, np.ldexp(new, exponent)), FITTED[law].extend(SHEET, new)
    assert placed.weights.tobytes() == expected.weights.tobytes()
    np.testing.assert_array_equal(placed.distances, np.ldexp(expected.distances, exponent))


@pytest.mark.parametrize("unit", [1e150, 1e-150, 1e300, 1e-300, 8e306])
@pytest.mark.parametrize("law", sorted(LAWS))
def test_any_unit_is_accepted(law: str, unit: float) -> None:
    """The embedding of data near the ends of the range is that of the data, to the rounding of the multiplication."""
    after = fit(SHEET * unit, **LAWS[law])
    np.testing.assert_allclose(after.mean, FITTED[law].mean, atol=CLOSE)
    np.testing.assert_allclose(after.covariance_factor, FITTED[law].covariance_factor, atol=CLOSE)
    assert angle(after.embedding, FITTED[law].embedding) < 1e-6


def test_the_largest_doubles_are_data() -> None:
    """Coordinates of either sign up to the largest double, whose differences overflow, are fitted and placed."""
    X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    X[0], X[1] = 1.0, -1.0
    largest = np.finfo(float).max
    fitted, plain = fit(X * largest), fit(X)
    assert angle(fitted.embedding, plain.embedding) < 1e-6
    np.testing.assert_allclose(fitted.transform(X * largest, X[:4] * largest), fitted.embedding[:4], atol=1e-12)
    with pytest.raises(OutOfRangeError, match="unit of the training data"):
        fit(X * 1e-3).transform(X * 1e-3, np.full((1, 3), 1e300))


def test_every_entry_point_takes_any_unit() -> None:
    """Half-samples and calibration of X 2^j have the bits of those of X."""
    X = np.ldexp(SHEET, 600)
    plain, scaled = (resample(PosteriorEmbedder.of(fit(data), data), 2).places for data in (SHEET, X))
    np.testing.assert_array_equal(scaled, plain)
    scales = [calibrate(fit(data), data, n_half_samples=4, n_draws=4).trace for data in (SHEET, X)]
    assert scales[0] == scales[1]


def test_a_neighborhood_too_small_beside_the_data_is_refused() -> None:
    """Distances whose squares underflow beside the extent were taken for duplicates; the point is named."""
    X = np.concatenate([SHEET * 1e-180, [[1.0, 1.0, 1.0]]])
    with pytest.raises(OutOfRangeError, match="Fit these points alone"):
        fit(X)
    assert fit(X[:-1]).n_points == len(SHEET)
    with pytest.raises(DegenerateDataError):
        fit(np.full((30, 3), 1e-320))


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), law=st.sampled_from(sorted(LAWS)))
def test_the_order_of_points_changes_names_only(seed: int, law: str) -> None:
    """Each point keeps its law; eigenvalues and the plane of the embedding are the same."""
    order = np.random.default_rng(seed).permutation(len(SHEET))
    before, after = FITTED[law], fit(SHEET[order], **LAWS[law])
    named = order[after.neighbors]
    ascending = np.argsort(named, axis=1)
    np.testing.assert_array_equal(np.take_along_axis(named, ascending, axis=1), before.neighbors[order])
    moved = np.take_along_axis(after.mean, ascending, axis=1)
    np.testing.assert_allclose(moved, before.mean[order], atol=CLOSE)
    F, G = before.covariance_factor[order], np.take_along_axis(after.covariance_factor, ascending[:, :, None], axis=1)
    np.testing.assert_allclose(G @ G.transpose(0, 2, 1), F @ F.transpose(0, 2, 1), atol=CLOSE)
    np.testing.assert_allclose(after.eigenvalues, before.eigenvalues, rtol=1e-6)
    assert angle(after.embedding, before.embedding[order]) < 1e-5


@settings(max_examples=20)
@given(
    shift=st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3),
    unit=st.floats(1e-140, 1e140),
    law=st.sampled_from(sorted(LAWS)),
)
def test_translation_and_unit_change_the_law_by_rounding(shift: list[float], unit: float, law: str) -> None:
    """The law, the eigenvalues and the embedding of moved and rescaled data are the same to rounding."""
    before, after = FITTED[law], fit((SHEET + shift) * unit, **LAWS[law])
    np.testing.assert_array_equal(after.neighbors, before.neighbors)
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-5)
    F, G = before.covariance_factor, after.covariance_factor
    np.testing.assert_allclose(G @ G.transpose(0, 2, 1), F @ F.transpose(0, 2, 1), atol=1e-6)
    np.testing.assert_allclose(after.eigenvalues, before.eigenvalues, rtol=1e-4)
    assert angle(after.embedding, before.embedding) < 1e-4


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), copies=st.integers(1, 4))
def test_duplicates_reconstruct_each_other(seed: int, copies: int) -> None:
    """Duplicates can be exchanged: equal weights on each of them, and equal weights of each on all other points."""
    rng = np.random.default_rng(seed)
    chosen = int(rng.integers(len(SHEET)))
    X = np.concatenate([SHEET, np.repeat(SHEET[chosen, None], copies, axis=0)])
    fitted = fit(X)
    alike = [chosen, *range(len(SHEET), len(X))]
    assert fitted.diagnostics.figures["points_with_duplicates"] == copies + 1
    for point in alike:
        own = np.isin(fitted.neighbors[point], alike)
        assert own.sum() == copies
        np.testing.assert_allclose(fitted.mean[point, own], fitted.mean[chosen, -copies:], atol=1e-12)
        np.testing.assert_array_equal(fitted.neighbors[point, ~own], fitted.neighbors[chosen, :-copies])
        np.testing.assert_allclose(fitted.mean[point, ~own], fitted.mean[chosen, :-copies], atol=1e-12)
    assert np.ptp(fitted.embedding[alike], axis=0).max() < 0.1 * np.ptp(fitted.embedding, axis=0).min()


def test_other_training_data_are_refused(tmp_path: Path) -> None:
    """The digest of the training data is in the posterior; other data of the same shape are refused everywhere."""
    fitted, other = FITTED["em"], SHEET[::-1]
    assert fitted.data_sha256 == digest(SHEET)
    calls: list[Any] = [
        lambda X: fitted.transform(X, SHEET[:2]),
        lambda X: fitted.reconstruct(X, fitted.mean),
        lambda X: calibrate(fitted, X, n_half_samples=4, n_draws=4),
    ]
    for call in calls:
        with pytest.raises(DataMismatchError, match="data of the fit") as caught:
            call(other)
        assert caught.value.details["expected"] == fitted.data_sha256
        call(SHEET)
        call(SHEET.tolist())
    fitted.save(tmp_path / "fit.npz")
    with pytest.raises(DataMismatchError):
        load(tmp_path / "fit.npz").transform(other, other[:2])


def test_posteriors_without_a_digest_accept_any_data() -> None:
    """A file of an earlier version has no digest, and is used as before."""
    fitted = FITTED["em"]
    head = {name: value for name, value in fitted.head().items() if name != "data_sha256"}
    older = Posterior.from_parts(head, fitted.arrays())
    assert older.data_sha256 is None
    assert older.transform(SHEET[::-1], SHEET[:2]).shape == (2, 2)


def test_digests_are_of_values() -> None:
    """Lists, single precision, other byte orders and signs of zero have one digest; shape and order count."""
    X = np.array([[0.0, 1.5], [2.0, -3.0], [4.0, 0.25]])
    same: list[NDArray[Any]] = [X.astype(">f8"), X.astype(np.float32).astype(float), X * -1 * -1]
    same.append(np.where(X == 0, -0.0, X))
    assert {digest(np.asarray(one, float)) for one in same} == {digest(X)}
    assert len({digest(X), digest(X[::-1]), digest(X.reshape(2, 3)), digest(X.reshape(1, 6))}) == 4
