"""Diffusion maps against dense algebra, and alpha against the density of the points."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from glle_engine import manifolds
from glle_engine.base.errors import DegenerateDataError, InvalidParameterError, TooFewPointsError
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS, Embedding
from glle_engine.methods.spectral import diffusion_maps


def embed(X: NDArray[np.float64], **options: Any) -> Embedding:
    """Embed with some options."""
    return METHODS["diffusion-maps"].embed(X, METHODS["diffusion-maps"].spec(**options))


def markov(X: NDArray[np.float64], epsilon: float, alpha: float) -> NDArray[np.float64]:
    """Return the matrix P of the walk, as it is defined."""
    K = np.exp(-cdist(X, X, "sqeuclidean") / epsilon)
    q = K.sum(axis=1)
    K /= np.outer(q, q) ** alpha
    return np.asarray(K / K.sum(axis=1, keepdims=True))


@pytest.fixture(scope="module")
def curve() -> NDArray[np.float64]:
    """Return 300 points of an S-curve."""
    return manifolds.make("s_curve", 300, seed=1).X


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n_neighbors", ["all", 299])
def test_against_the_markov_matrix_itself(curve: NDArray[np.float64], alpha: float, n_neighbors: int | str) -> None:
    """Eigenvectors of P, not symmetric, of length 1 by its stationary law, times lambda^t; kernel cut nowhere."""
    t, epsilon = 3, 0.3
    P = markov(curve, epsilon, alpha)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    values, right = np.linalg.eig(P)
    order = np.argsort(-values.real)
    law, left = np.linalg.eig(P.T)
    stationary = np.abs(left[:, np.argmax(law.real)].real)
    stationary /= stationary.sum()
    psi = right.real[:, order[1:3]]
    psi /= np.sqrt(stationary @ psi**2)
    found = embed(curve, alpha=alpha, t=t, epsilon=epsilon, n_neighbors=n_neighbors)
    expected = psi * values.real[order[1:3]] ** t
    expected *= np.sign(np.einsum("ij,ij->j", expected, found.Y))
    np.testing.assert_allclose(found.Y, expected, atol=1e-7)
    assert found.eigenvalues is not None
    np.testing.assert_allclose(found.eigenvalues, values.real[order[1:3]], rtol=1e-9)


def test_the_symmetric_conjugate_is_that_of_a_markov_matrix(curve: NDArray[np.float64]) -> None:
    """diag(d)^-1/2 S diag(d)^1/2 has rows that sum to one, and is P."""
    K = csr_array(np.exp(-cdist(curve, curve, "sqeuclidean") / 0.3))
    S, d = diffusion_maps.diffusion(K, 0.5)
    P = S.toarray() * np.sqrt(d)[None, :] / np.sqrt(d)[:, None]
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(P, markov(curve, 0.3, 0.5), atol=1e-12)


def test_diffusion_distance_is_the_distance_of_the_walks(curve: NDArray[np.float64]) -> None:
    """With all coordinates, |y_i - y_j|^2 = sum_l (P^t_il - P^t_jl)^2 / pi_l (Coifman and Lafon)."""
    X, t, epsilon = curve[:40], 2, 0.5
    K = np.exp(-cdist(X, X, "sqeuclidean") / epsilon)
    stationary = K.sum(axis=1) / K.sum()
    walks = np.linalg.matrix_power(markov(X, epsilon, 0.0), t) / np.sqrt(stationary)
    found = embed(X, alpha=0.0, t=t, epsilon=epsilon, n_components=37)
    np.testing.assert_allclose(cdist(found.Y, found.Y), cdist(walks, walks), atol=1e-4)


def test_alpha_1_forgets_the_density_of_a_circle_and_alpha_0_does_not() -> None:
    """Laplace and Beltrami's eigenfunctions of a circle are its cosine and sine, however it is sampled."""
    uniform = (np.arange(400) + 0.5) / 400
    angle = 2 * np.pi * uniform + 0.7 * np.sin(2 * np.pi * uniform)  # one side has some six times the points
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    apart = {alpha: disparity(embed(circle, alpha=alpha, epsilon=0.03).Y, circle) for alpha in (0.0, 0.5, 1.0)}
    assert apart[1.0] < 0.002
    assert apart[0.5] > 5 * apart[1.0]
    assert apart[0.0] > 20 * apart[1.0]


def test_delta_and_time_tell_how_many_coordinates_count(curve: NDArray[np.float64]) -> None:
    """The figure is the count by its definition; auto takes the first time at which p are enough."""
    all_values = np.sort(np.linalg.eigvals(markov(curve, 0.3, 1.0)).real)[-2::-1]
    for t in (1, 5, 40):
        found = embed(curve, epsilon=0.3, t=t, delta=0.2)
        counted = int(np.sum(all_values[:30] ** t > 0.2 * all_values[0] ** t))
        assert found.figures["dimension"] == counted
        assert bool(found.notes) == (counted > 2)
    chosen = embed(curve, epsilon=0.3, t="auto", delta=0.2)
    assert chosen.figures["dimension"] <= 2
    assert chosen.notes == ()
    assert embed(curve, epsilon=0.3, t=chosen.figures["t"] - 1, delta=0.2).figures["dimension"] == 3


def test_time_0_shows_the_eigenfunctions_themselves(curve: NDArray[np.float64]) -> None:
    """Each has variance 1 by the stationary law, and time shrinks it by its eigenvalue."""
    start, later = embed(curve, t=0), embed(curve, t=7)
    assert start.eigenvalues is not None
    np.testing.assert_allclose(later.Y, start.Y * start.eigenvalues**7, rtol=1e-9)


def test_a_kernel_cut_to_neighbors_is_nearly_the_whole(curve: NDArray[np.float64]) -> None:
    """Where the kernel has decayed at the last neighbor, leaving the rest out changes little."""
    whole, cut = embed(curve, epsilon=0.05), embed(curve, epsilon=0.05, n_neighbors=60)
    assert disparity(whole.Y, cut.Y) < 1e-3
    assert cut.figures["n_neighbors"] == 60
    assert whole.figures["n_neighbors"] is None


def test_refuses_what_the_walk_forgets_and_what_does_not_fit(curve: NDArray[np.float64]) -> None:
    """A time at which nothing is left, a kernel too large, more neighbors than points, no bandwidth."""
    with pytest.raises(DegenerateDataError, match="Give a smaller t"):
        embed(curve, t=1_000_000, epsilon=1.0)
    one = METHODS["diffusion-maps"]
    with pytest.raises(InvalidParameterError, match="Cut it: give n_neighbors"):
        one.require_possible(5_000, 3, one.spec(n_neighbors="all"))
    with pytest.raises(TooFewPointsError, match="n_neighbors=300 needs at least 301 points"):
        embed(curve, n_neighbors=300)
    crowded = np.repeat(curve[:5], 20, axis=0)
    with pytest.raises(DegenerateDataError, match="remove duplicates"):
        embed(crowded)


def test_auto_refuses_a_time_that_tells_equal_eigenvalues_apart() -> None:
    """Cosine and sine of a circle have one eigenvalue: no time leaves one of them out."""
    angle = 2 * np.pi * np.arange(60) / 60
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    with pytest.raises(DegenerateDataError, match="Give t, or one component more"):
        embed(circle, t="auto", n_components=1)
    assert embed(circle, t="auto").figures["dimension"] <= 2
