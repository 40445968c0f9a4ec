"""Refits of methods to parts of the data, and with other seeds."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.base.errors import DisconnectedGraphError, GlleError, InvalidParameterError, MissingLibraryError
from glle_engine.methods import METHODS, Method, method
from glle_engine.reliability.refits import MethodEmbedder, cost, require_resamplable, shrunk
from glle_engine.reliability.resamples import HALVES, SEEDS, draw_sample, resample
from tests.engine.methods.reference import with_slow_ones


@pytest.fixture(scope="module")
def sheet() -> np.ndarray:
    """120 points of an S-curve with noise."""
    X = manifolds.make("s_curve", 120, seed=3).X
    return X + 0.02 * np.random.default_rng(0).standard_normal(X.shape)


def refit(X: np.ndarray, name: str, **options: object) -> MethodEmbedder[Any]:
    """Return a method with its data."""
    return MethodEmbedder(X, method(name), method(name).spec.from_dict(options))


@pytest.mark.parametrize("name", with_slow_ones(METHODS))
def test_every_method_is_resampled(sheet: np.ndarray, name: str) -> None:
    """Each method embeds a half and places the others at finite places, or says why not."""
    embedder = METHODS[name]
    labels = (sheet[:, 0] > 0).astype(np.int64) if embedder.labels else None
    options: dict[str, Any] = {}
    if "perplexity" in embedder.spec.parameters():
        options["perplexity"] = 10
    if "max_iter" in embedder.spec.parameters() and name != "glle":
        options["max_iter"] = 10
    if "n_iter" in embedder.spec.parameters():
        options["n_iter"] = 60
    try:
        embedder.require_available()
    except MissingLibraryError:
        pytest.skip("its library is not installed")
    spec = embedder.spec.from_dict(options)
    found = resample(MethodEmbedder(sheet, embedder, spec, labels), 2)
    assert found.places.shape == (2, 120, 2)
    assert len(found.problems) + len(found.embeddings) == 2
    assert len(found.embeddings), found.problems
    assert cost(120, 3, embedder, spec).seconds > cost(120, 3, embedder, spec, 10).seconds > 0


@pytest.mark.parametrize("name", ["pca", "ppca", "npe", "mds", "factor-analysis", "kernel-pca"])
def test_linear_methods_place_by_their_projection(sheet: np.ndarray, name: str) -> None:
    """A held-out point is where the affine map of the sample puts it: three places fix the places of all points."""
    embed = refit(sheet, name, **({"kernel": "linear"} if name == "kernel-pca" else {}))
    places = resample(embed, 1).places[0]
    half = draw_sample(embed, HALVES, 0, 0).chosen
    design = np.column_stack([np.ones(len(sheet)), sheet])
    fitted = design @ np.linalg.lstsq(design[half], places[half], rcond=None)[0]
    assert np.abs(fitted - places).max() <= 1e-8 * np.abs(places).max()
    alone = embed.method.embed(sheet[half], replace(embed.spec, **shrunk(embed.spec))).Y
    assert np.array_equal(places[half], alone)


def test_distances_are_as_good_as_points(sheet: np.ndarray) -> None:
    """Half-samples of a matrix of distances have the shape of those of its points."""
    D = np.sqrt(((sheet[:, None] - sheet) ** 2).sum(axis=2))
    D = (D + D.T) / 2
    of_points = resample(refit(sheet, "isomap", n_neighbors=8), 1).places[0]
    of_distances = resample(refit(D, "isomap", n_neighbors=8, metric="precomputed"), 1).places[0]
    apart = np.sqrt(((of_points[:, None] - of_points) ** 2).sum(axis=2))
    again = np.sqrt(((of_distances[:, None] - of_distances) ** 2).sum(axis=2))
    assert np.abs(apart - again).max() <= 1e-6 * apart.max()
    assert resample(refit(D, "mds", dissimilarity="precomputed"), 1).problems == ()


def test_seeds(sheet: np.ndarray) -> None:
    """Only a method with a seed is refitted with others: seed + 1, seed + 2, and so on."""
    with pytest.raises(InvalidParameterError, match="has no seed"):
        resample(refit(sheet, "lle"), 2, stream=SEEDS)
    alle = refit(sheet, "alle", ordering="random", seed=4)
    places = resample(alle, 2, stream=SEEDS).places
    assert np.array_equal(places[1], alle.method.embed(sheet, replace(alle.spec, seed=6)).Y)


@pytest.mark.parametrize("name", METHODS)
def test_an_embedder_goes_to_other_processes(sheet: np.ndarray, name: str) -> None:
    """Its pickle has the data, the name of the method and its parameters."""
    embed = refit(sheet, name)
    again = pickle.loads(pickle.dumps(embed))  # noqa: S301 # written here
    assert (again.method, again.spec, again.X.tobytes()) == (embed.method, embed.spec, embed.X.tobytes())


def test_counts_shrink() -> None:
    """Counts of neighbors are divided by the root of two, rounded up, but not below 5; words stay."""
    assert shrunk(method("lle").spec(n_neighbors=10)) == {"n_neighbors": 8}
    assert shrunk(method("lle").spec(n_neighbors=4)) == {"n_neighbors": 4}
    assert shrunk(method("t-sne").spec(perplexity=30))["perplexity"] == pytest.approx(30 / np.sqrt(2))
    assert "n_neighbors" not in shrunk(method("diffusion-maps").spec(n_neighbors="all"))
    assert shrunk(method("pca").spec()) == {}
    assert shrunk(method("t-sne").spec(perplexity=30), 0.632)["perplexity"] == pytest.approx(30 * np.sqrt(0.632))


def test_refusals(sheet: np.ndarray) -> None:
    """A half that the method refuses is refused before any work, with the sizes and the remedy."""
    lle: Method[Any] = method("lle")
    with pytest.raises(InvalidParameterError, match="19 points are too few"):
        require_resamplable(19, 3, lle, lle.spec(n_neighbors=5))
    with pytest.raises(GlleError, match="half of the 60 points"):
        require_resamplable(60, 3, lle, lle.spec(n_neighbors=50))
    require_resamplable(60, 3, lle, lle.spec(n_neighbors=30))
    with pytest.raises(InvalidParameterError, match="63% of the 59 points"):
        require_resamplable(59, 3, lle, lle.spec(n_neighbors=54), share=0.632)
    with pytest.raises(InvalidParameterError, match=r"share=0[.]6 is not"):
        require_resamplable(60, 3, lle, lle.spec(n_neighbors=30), share=0.6)
    with pytest.raises(InvalidParameterError, match="class of each point"):
        resample(refit(sheet, "supervised-lle"), 1)


def test_a_half_in_parts_is_a_problem() -> None:
    """Two far groups of points have no connected graph: places are NaN, with the reason."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[20:] += 1000
    embed = refit(X, "lle", n_neighbors=5)
    found = resample(embed, 2)
    assert np.isnan(found.places).all()
    assert len(found.problems) == 2
    with pytest.raises(DisconnectedGraphError):
        resample(embed, 2, strict=True)
