"""Summaries of many draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from glle_engine import fit
from glle_engine.base.errors import InvalidParameterError
from glle_engine.linalg.procrustes import procrustes_rotation
from glle_engine.posterior.summary import (
    MAX_ROUNDS,
    TOLERANCE,
    aligned_to_consensus,
    generalized_procrustes,
    moments,
    summarize,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


def test_generalised_procrustes_undoes_rotations() -> None:
    """Turned and reflected copies of one configuration agree after alignment, whatever the turns."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((60, 3))
    turns = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(6)]
    consensus, aligned = generalized_procrustes(np.stack([Y @ turn for turn in turns]))
    np.testing.assert_allclose(aligned, np.broadcast_to(aligned[0], aligned.shape), atol=1e-10)
    np.testing.assert_allclose(consensus, Y @ turns[0], atol=1e-10)


def residual(aligned: NDArray[np.float64]) -> float:
    """Return the sum of squared distances to the mean configuration."""
    return float(((aligned - aligned.mean(axis=0)) ** 2).sum())


def turned_copies(seed: int, p: int, noise: float) -> NDArray[np.float64]:
    """Return nine turned copies (9, 80, p) of one configuration with noise."""
    rng = np.random.default_rng(seed)
    Y = rng.standard_normal((1, 80, p)) + noise * rng.standard_normal((9, 80, p))
    return np.stack([one @ np.linalg.qr(rng.standard_normal((p, p)))[0] for one in Y])


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 4), noise=st.floats(0.3, 2.0))
def test_each_round_of_generalised_procrustes_lowers_the_residual(seed: int, p: int, noise: float) -> None:
    """The first round aligns to the first embedding, and later ones improve on it."""
    Y, residuals = turned_copies(seed, p, noise), []
    with pytest.MonkeyPatch.context() as patched:
        for rounds in (1, 2, 3, 5, 10, 100):
            patched.setattr("glle_engine.posterior.summary.MAX_ROUNDS", rounds)
            residuals.append(residual(generalized_procrustes(Y)[1]))
    to_first = np.stack([one @ procrustes_rotation(one, Y[0]) for one in Y])
    assert residuals[0] == pytest.approx(residual(to_first), rel=1e-12)
    assert (np.diff(residuals) <= 1e-12 * residuals[0]).all()
    if p > 1:  # signs alone may agree
        assert residuals[-1] < residuals[0]


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 4), noise=st.floats(0.0, 0.5))
def test_generalised_procrustes_converges_to_a_stationary_point(seed: int, p: int, noise: float) -> None:
    """With moderate noise it converges, and no turn brings an embedding closer to the mean."""
    Y, rounds = turned_copies(seed, p, noise), []
    consensus, aligned = generalized_procrustes(Y, lambda round_, *_: rounds.append(round_))
    assert len(rounds) < MAX_ROUNDS
    np.testing.assert_allclose(consensus, aligned.mean(axis=0), rtol=0, atol=1e-12)
    # The best turn of Y_j to C is the identity if and only if Y_j^T C is symmetric and positive semidefinite. It is so
    # for the mean of the round before, which differs from C by the tolerance.
    for one in aligned:
        overlap = one.T @ consensus
        apart = 10 * TOLERANCE * float(np.linalg.norm(one) * np.linalg.norm(consensus))
        np.testing.assert_allclose(overlap, overlap.T, rtol=0, atol=apart)
        assert np.linalg.eigvalsh((overlap + overlap.T) / 2).min() >= -apart


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 9), p=st.integers(1, 3))
def test_moments_are_those_of_numpy_point_by_point(seed: int, m: int, p: int) -> None:
    """Mean and covariance are numpy's to rounding, and a point's are the same bits alone."""
    places = np.random.default_rng(seed).standard_normal((m, 20, p)) + 5
    mean, covariance = moments(places)
    np.testing.assert_allclose(mean, places.mean(axis=0), rtol=1e-14)
    for i in range(20):
        np.testing.assert_allclose(covariance[i], np.cov(places[:, i].T).reshape(p, p), atol=1e-14, rtol=1e-12)
        alone = moments(places[:, i : i + 1])
        assert (alone[0][0].tobytes(), alone[1][0].tobytes()) == (mean[i].tobytes(), covariance[i].tobytes())


def test_draws_that_have_little_to_do_with_the_reference_are_noted(posterior: Posterior) -> None:
    """The note comes with a mean disparity above 3/4, and not with draws of a roll."""
    assert posterior.summary(10).notes == ()
    noise = np.random.default_rng(0).standard_normal((300, 20))
    (note,) = fit(noise).summary(10).notes
    assert note.code == "unrelated-draws"
    apart = np.mean([draw.diagnostics["disparity"] for draw in fit(noise).draws(10)])
    assert apart > 0.75
    assert f"{apart:.2f}" in note.message


def test_summary_of_a_posterior(posterior: Posterior) -> None:
    """Covariance, spread, stability, spectrum and agreement are those of the draws, recomputed by hand."""
    summary = posterior.summary(12, seed=3)
    draws = list(posterior.draws(12, seed=3))
    np.testing.assert_allclose(summary.spread**2, np.trace(summary.covariance, axis1=1, axis2=2))
    np.testing.assert_array_equal(summary.eigenvalues, [d.eigenvalues for d in draws])
    angles = subspace_angles(draws[4].embedding, posterior.embedding)
    assert summary.agreement[4] == pytest.approx((np.cos(angles) ** 2).mean(), abs=1e-9)
    following = draws[2].diagnostics["next_eigenvalue"]
    assert summary.relative_gaps[2] == pytest.approx(1 - draws[2].eigenvalues[1] / following)
    assert ((summary.stability > 0) & (summary.stability <= 1)).all()
    assert np.linalg.norm(summary.consensus - posterior.embedding) <= np.linalg.norm(
        summary.consensus * [1, -1] - posterior.embedding
    )


def test_spread_grows_with_the_scale_and_vanishes_at_zero(posterior: Posterior) -> None:
    """At scale 0 all draws are the reference: no spread, full stability and agreement."""
    still, small, large = (posterior.summary(10, scale=scale) for scale in (0.0, 0.01, 1.0))
    assert still.spread.max() < 1e-6
    assert still.stability.min() == pytest.approx(1)
    np.testing.assert_allclose(still.agreement, 1, atol=1e-9)
    np.testing.assert_allclose(still.consensus, posterior.embedding, atol=1e-6)
    assert np.median(small.spread) < np.median(large.spread)
    assert small.stability.mean() > large.stability.mean()


def test_one_draw_has_no_spread(posterior: Posterior) -> None:
    """Fewer than two draws are refused with the remedy."""
    with pytest.raises(InvalidParameterError, match="two draws"):
        posterior.summary(1)


def test_progress_is_reported_and_can_end_it(posterior: Posterior) -> None:
    """Rounds and draws are reported; an exception of the callback cancels the summary."""
    reports: list[tuple[int, int, str]] = []
    draws = list(posterior.draws(5))
    summarize(draws, posterior.embedding, on_progress=lambda *args: reports.append(args))
    assert reports[0][2] == "consensus"
    assert [entry for entry in reports if entry[2] == "stability"] == [(i, 5, "stability") for i in range(1, 6)]

    class Stop(Exception):  # noqa: N818 # a listener's own
        pass

    def stop(done: int, _: int, stage: str) -> None:
        if (done, stage) == (2, "stability"):
            raise Stop

    with pytest.raises(Stop):
        summarize(draws, posterior.embedding, on_progress=stop)


def test_a_consensus_from_the_reference_does_not_depend_on_the_order() -> None:
    """Most embeddings agree with the reference; an embedding of another shape in front does not lead the alignment."""
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((60, 2))
    embeddings = np.stack([reference + 0.1 * rng.standard_normal((60, 2)) for _ in range(9)])
    embeddings = np.concatenate([rng.standard_normal((1, 60, 2)), embeddings])
    first = aligned_to_consensus(embeddings, reference, start=reference)
    last = aligned_to_consensus(embeddings[::-1], reference, start=reference)[::-1]
    np.testing.assert_allclose(first, last, atol=1e-9)
