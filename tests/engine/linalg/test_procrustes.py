"""Generalised Procrustes alignment, and the moments of aligned embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine.linalg.procrustes import (
    MAX_ROUNDS,
    TOLERANCE,
    generalized_procrustes,
    medoid,
    moments,
    procrustes_rotation,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_generalised_procrustes_undoes_rotations() -> None:
    """Turned and reflected copies of one configuration agree after alignment, whatever the turns."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((60, 3))
    turns = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(6)]
    aligned = generalized_procrustes(np.stack([Y @ turn for turn in turns]), Y)
    np.testing.assert_allclose(aligned, np.broadcast_to(Y, aligned.shape), atol=1e-10)


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
    """The first round aligns to the medoid, and later ones improve on it."""
    Y, residuals = turned_copies(seed, p, noise), []
    with pytest.MonkeyPatch.context() as patched:
        for rounds in (1, 2, 3, 5, 10, 100):
            patched.setattr("glle_engine.linalg.procrustes.MAX_ROUNDS", rounds)
            residuals.append(residual(generalized_procrustes(Y, Y[0])))
    middle = Y[medoid(Y)]
    to_medoid = np.stack([one @ procrustes_rotation(one, middle) for one in Y])
    assert residuals[0] == pytest.approx(residual(to_medoid), rel=1e-12)
    assert (np.diff(residuals) <= 1e-12 * residuals[0]).all()
    if p > 1:  # signs alone may agree
        assert residuals[-1] < residuals[0]


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 4), noise=st.floats(0.0, 0.5))
def test_generalised_procrustes_converges_to_a_stationary_point(seed: int, p: int, noise: float) -> None:
    """With moderate noise it converges, and no turn brings an embedding closer to the mean."""
    Y, rounds = turned_copies(seed, p, noise), []
    aligned = generalized_procrustes(Y, Y[0], lambda round_, *_: rounds.append(round_))
    consensus = aligned.mean(axis=0)
    assert len(rounds) < MAX_ROUNDS
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


@pytest.mark.parametrize("given_start", [True, False])
def test_a_consensus_does_not_depend_on_the_order(given_start: bool) -> None:  # noqa: FBT001
    """Most embeddings agree; an embedding of another shape in front does not lead the alignment."""
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((60, 2))
    embeddings = np.stack([reference + 0.1 * rng.standard_normal((60, 2)) for _ in range(9)])
    embeddings = np.concatenate([rng.standard_normal((1, 60, 2)), embeddings])
    assert medoid(embeddings) != 0
    start = reference if given_start else None
    first = generalized_procrustes(embeddings, reference, start=start)
    last = generalized_procrustes(embeddings[::-1], reference, start=start)[::-1]
    np.testing.assert_allclose(first, last, atol=1e-9)


def test_the_medoid_is_nearest_to_the_others() -> None:
    """By the definition, for a few embeddings; of many, one of those that are compared."""
    Y = turned_copies(0, 2, 0.5)
    sums = [((np.stack([one @ procrustes_rotation(one, other) for one in Y]) - other) ** 2).sum() for other in Y]
    assert medoid(Y) == np.argmin(sums)
    many = np.concatenate([Y] * 20)
    assert medoid(many) in np.linspace(0, len(many) - 1, 32).astype(int)
