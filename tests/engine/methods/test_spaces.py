"""Standardization and metrics of the methods."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from glle_engine import GlleError, manifolds
from glle_engine.methods import METHODS
from glle_engine.methods.neighbor_embedding.affinities import conditional_affinities, joint_affinities
from glle_engine.methods.neighbor_embedding.common import spectral

SPACED = [name for name, method in METHODS.items() if "metric" in method.spec.parameters()]
BY_DISTANCES = [name for name in SPACED if METHODS[name].by_distances]
SMALL = {"max_iter": 5, "n_iter": 60, "early_iter": 20, "perplexity": 8.0, "n_neighbors": 9}


def parameters_of(name: str) -> dict[str, object]:
    """Return parameters of a quick run."""
    return {key: value for key, value in SMALL.items() if key in METHODS[name].spec.parameters()}


@pytest.mark.parametrize(
    "name", ["lle", "isomap", "laplacian-eigenmaps", "ltsa", "diffusion-maps", "npe", "glle", "sne"]
)
def test_a_method_embeds_standardized_data(name: str) -> None:
    """The embedding is that of the data standardized by hand; defaults change no parameters."""
    X = manifolds.make("s_curve", 120, seed=1).X
    method = METHODS[name]
    parameters = parameters_of(name)
    by_hand = (X - X.mean(axis=0)) / X.std(axis=0)
    a = method.embed(X * [1, 500, 0.01], method.spec(**parameters, standardize="zscore"))
    b = method.embed(by_hand, method.spec(**parameters))
    np.testing.assert_allclose(cdist(a.Y, a.Y), cdist(b.Y, b.Y), rtol=5e-4, atol=5e-5)
    assert not {"standardize", "metric"} & set(method.spec(**parameters).to_dict())
    with pytest.raises(GlleError, match="one of none, zscore, robust"):
        method.spec(standardize="minmax")


def test_every_method_on_neighbors_has_the_parameters() -> None:
    """Those with n_neighbors or perplexity, but for a graphical model of features."""
    on_neighbors = {
        name for name, method in METHODS.items() if {"n_neighbors", "perplexity"} & set(method.spec.parameters())
    }
    assert on_neighbors <= {*SPACED, "drill"}


@pytest.mark.parametrize("name", BY_DISTANCES)
def test_a_method_embeds_distances(name: str) -> None:
    """As the points that have them."""
    method = METHODS[name]
    try:
        method.require_available()
    except GlleError as error:
        pytest.skip(str(error))
    X = manifolds.make("s_curve", 120, seed=1).X
    parameters = parameters_of(name)
    a = method.embed(X, method.spec(**parameters))
    b = method.embed(cdist(X, X), method.spec(**parameters, metric="precomputed"))
    assert a.Y.shape == b.Y.shape
    assert np.isfinite(b.Y).all()
    if name not in {"t-sne", "sne", "symmetric-sne", "elastic-embedding"}:  # a descent amplifies rounding
        np.testing.assert_allclose(cdist(b.Y, b.Y), cdist(a.Y, a.Y), rtol=5e-5, atol=5e-6)
    with pytest.raises(GlleError, match="square"):
        method.embed(X, method.spec(**parameters, metric="precomputed"))


def test_the_spectral_start_solves_the_laplacian() -> None:
    """Smallest eigenvalues of L y = lambda D y, without the constant, for affinities of two parts nearly apart."""
    X = np.concatenate([np.random.default_rng(0).random((30, 2)), np.random.default_rng(1).random((30, 2)) + 2])
    joint = joint_affinities(conditional_affinities(X, 9.0)[0])
    degrees = np.diag(joint.sum(axis=1))
    values, _ = eigh(degrees - joint, degrees)
    Y = spectral(joint, 2)
    for column, value in zip(Y.T, values[1:], strict=False):
        np.testing.assert_allclose((degrees - joint) @ column, value * degrees @ column, atol=1e-10)
    assert len(set(np.sign(Y[:30, 0])) | set(np.sign(-Y[30:, 0]))) == 1  # the first one separates the parts


@pytest.mark.parametrize("name", ["sne", "symmetric-sne", "elastic-embedding"])
def test_descents_start_from_eigenvectors(name: str) -> None:
    """Another start is another descent; methods without a start refuse one."""
    X = manifolds.make("s_curve", 100, seed=0).X
    method = METHODS[name]
    a, b = (
        method.embed(X, method.spec(perplexity=8.0, max_iter=60, initialization=start)) for start in ("spectral", "pca")
    )
    assert np.isfinite(a.Y).all()
    assert not np.array_equal(a.Y, b.Y)
    with pytest.raises(GlleError, match="Unknown parameters: init"):
        METHODS["lle"].spec.from_dict({"init": "pca"})


@pytest.mark.parametrize("name", ["ltsa", "npe", "mvu"])
def test_a_method_on_coordinates_refuses_distances(name: str) -> None:
    """With the methods that take them."""
    method = METHODS[name]
    D = np.ones((30, 30)) - np.eye(30)
    with pytest.raises(GlleError, match=r"needs coordinates.*isomap|not installed"):
        method.embed(D, method.spec(metric="precomputed"))
