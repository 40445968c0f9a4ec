"""Embeddings do not depend on origin, orientation, unit, padding or order of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine import manifolds
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS

if TYPE_CHECKING:
    from numpy.typing import NDArray

N = 150
# Isomap and MDS are functions of distances; LLE is one of weights, which have no unit.
NAMES = ("lle", "isomap", "mds")


def embed(name: str, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Embed with twelve neighbors, where the method has neighbors."""
    one = METHODS[name]
    options = {"n_neighbors": 12} if "n_neighbors" in one.spec.parameters() else {}
    return one.embed(X, one.spec(**options)).Y


def sheet(seed: int) -> NDArray[np.float64]:
    """Return an s-curve on a grid of 2^-20, so that shifts by integers are exact."""
    return np.round(manifolds.make("s_curve", N, seed=seed).X * 2.0**20) / 2.0**20


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(seed=st.integers(0, 200), shift=st.integers(-(2**24), 2**24), exponent=st.integers(-300, 300))
def test_origin_and_unit(name: str, seed: int, shift: int, exponent: int) -> None:
    """An exact shift changes rounding at most; a unit of a power of 2 scales distances, and changes no weight."""
    X = sheet(seed)
    Y = embed(name, X)
    assert disparity(embed(name, X + shift), Y) < 1e-9
    unit = 2.0**exponent
    scaled = embed(name, X * unit) / (1 if name == "lle" else unit)
    np.testing.assert_allclose(scaled, Y, rtol=0, atol=(1e-9 if name == "mds" else 0) * np.ptp(Y))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(seed=st.integers(0, 200), width=st.sampled_from([3, 10, 15, 16, 40]))
def test_isometric_copies(name: str, seed: int, width: int) -> None:
    """Turned into more dimensions, on either side of the limit between the searches, the sheet is the same."""
    rng = np.random.default_rng(seed)
    X = sheet(seed)
    turn = np.linalg.qr(rng.standard_normal((width, 3)))[0]
    assert disparity(embed(name, X @ turn.T), embed(name, X)) < 1e-7
    padded = np.concatenate([X, np.zeros((N, width))], axis=1)
    assert disparity(embed(name, padded), embed(name, X)) < 1e-9


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(seed=st.integers(0, 200))
def test_order_of_points(name: str, seed: int) -> None:
    """A permutation of the points permutes the embedding."""
    order = np.random.default_rng(seed).permutation(N)
    X = sheet(seed)
    assert disparity(embed(name, X[order]), embed(name, X)[order]) < 1e-7


@settings(max_examples=6)
@given(seed=st.integers(0, 200), copies=st.integers(1, 6))
def test_copies_are_at_one_place(seed: int, copies: int) -> None:
    """Points that were given several times are, in a function of distances, at one place each time."""
    X = sheet(seed)
    own = np.random.default_rng(seed).integers(0, N, copies)
    for name in ("isomap", "mds"):
        Y = embed(name, np.concatenate([X, X[own]]))
        np.testing.assert_allclose(Y[N:], Y[own], atol=1e-6 * np.ptp(Y))
