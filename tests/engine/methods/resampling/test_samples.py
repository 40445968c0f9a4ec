"""Tests of `glle_engine.methods.resampling.samples`."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.base.errors import GlleError, InvalidParameterError, MissingLibraryError
from glle_engine.methods import METHODS, Method, method
from glle_engine.methods.resampling import cost, half_samples, refits, require_resamplable, shrunk
from glle_engine.methods.resampling.samples import halves
from glle_engine.posterior.spread.calibration import rank_correlation
from tests.engine.methods.reference import with_slow_ones


@pytest.fixture(scope="module")
def sheet() -> np.ndarray:
    """120 points of an S-curve with noise."""
    X = manifolds.make("s_curve", 120, seed=3).X
    return X + 0.02 * np.random.default_rng(0).standard_normal(X.shape)


def test_halves_are_functions_of_seed_and_number() -> None:
    """Each half has n / 2 points, the others are its complement; halves of other numbers and seeds differ."""
    half, others = halves(11, 5, 3)
    assert len(half) == 5
    assert np.array_equal(np.sort(np.concatenate([half, others])), np.arange(11))
    assert np.array_equal(half, halves(11, 5, 3)[0])
    larger, rest = halves(11, 5, 3, 0.632)
    assert (len(larger), sorted([*larger, *rest])) == (7, list(range(11)))
    assert len({tuple(halves(200, seed, j)[0]) for seed in range(3) for j in range(10)}) == 30


@pytest.mark.parametrize("name", ["pca", "lle", "alle", "glle", "symmetric-sne"])
def test_shards_equal_one_go(sheet: np.ndarray, name: str) -> None:
    """Ranges of half-samples that are computed apart have the bits of one computation, in any order."""
    embedder = method(name)
    spec = embedder.spec.from_dict({"max_iter": 20, "perplexity": 10} if name == "symmetric-sne" else {})
    whole = half_samples(sheet, embedder, spec, range(4), seed=2).places
    parts = [half_samples(sheet, embedder, spec, part, seed=2).places for part in ([3], [0, 1], [2])]
    assert np.array_equal(whole, np.concatenate([parts[1], parts[2], parts[0]]))
    assert not np.array_equal(whole[0], half_samples(sheet, embedder, spec, [0], seed=3).places[0])


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
    found = half_samples(sheet, embedder, spec, [0, 1], labels=labels)
    assert found.places.shape == (2, 120, 2)
    finite = np.isfinite(found.places).all(axis=(1, 2))
    assert len(found.problems) == (~finite).sum()
    assert finite.any(), found.problems
    assert cost(120, 3, embedder, spec).seconds > cost(120, 3, embedder, spec, 10).seconds > 0


@pytest.mark.parametrize("name", ["pca", "ppca", "npe", "mds", "factor-analysis", "kernel-pca"])
def test_linear_methods_place_by_their_projection(sheet: np.ndarray, name: str) -> None:
    """A held-out point is where the affine map of the sample puts it: three places fix the places of all points."""
    embedder = method(name)
    options = {"kernel": "linear"} if name == "kernel-pca" else {}
    places = half_samples(sheet, embedder, embedder.spec.from_dict(options), [0]).places[0]
    half, _ = halves(len(sheet), 0, 0)
    design = np.column_stack([np.ones(len(sheet)), sheet])
    fitted = design @ np.linalg.lstsq(design[half], places[half], rcond=None)[0]
    assert np.abs(fitted - places).max() <= 1e-8 * np.abs(places).max()
    spec = embedder.spec.from_dict(options)
    alone = embedder.embed(sheet[half], replace(spec, **shrunk(spec))).Y
    assert np.array_equal(places[half], alone)


def test_distances_are_as_good_as_points(sheet: np.ndarray) -> None:
    """Half-samples of a matrix of distances have the shape of those of its points."""
    D = np.sqrt(((sheet[:, None] - sheet) ** 2).sum(axis=2))
    D = (D + D.T) / 2
    embedder = method("isomap")
    spec = embedder.spec(n_neighbors=8)
    of_points = half_samples(sheet, embedder, spec, [0]).places[0]
    of_distances = half_samples(D, embedder, replace(spec, metric="precomputed"), [0]).places[0]
    apart = np.sqrt(((of_points[:, None] - of_points) ** 2).sum(axis=2))
    again = np.sqrt(((of_distances[:, None] - of_distances) ** 2).sum(axis=2))
    assert np.abs(apart - again).max() <= 1e-6 * apart.max()
    scaled = half_samples(D, method("mds"), method("mds").spec(dissimilarity="precomputed"), [0])
    assert scaled.problems == ()


def test_seeds(sheet: np.ndarray) -> None:
    """Only a method with a seed is refitted with others: seed + 1, seed + 2, and so on."""
    assert refits(sheet, method("lle"), method("lle").spec()).places.shape == (0, 120, 2)
    alle = method("alle")
    spec = alle.spec(ordering="random", seed=4)
    places = refits(sheet, alle, spec, range(2)).places
    assert np.array_equal(places[1], alle.embed(sheet, replace(spec, seed=6)).Y)


def test_a_listed_order_is_that_of_the_sample(sheet: np.ndarray) -> None:
    """A parameter that lists all points lists those of the sample, in the same order."""
    alle = method("alle")
    given, listed = alle.spec(), alle.spec(ordering=tuple(range(len(sheet))))
    assert np.array_equal(half_samples(sheet, alle, given, [0]).places, half_samples(sheet, alle, listed, [0]).places)


def test_progress_cancels_within_a_refit(sheet: np.ndarray) -> None:
    """The callback is called within a refit, with the numbers of the refits; its exception ends the computation."""

    class StoppedError(Exception):
        """The request to stop."""

    seen: list[tuple[int, int, str]] = []

    def stop(done: int, total: int, stage: str) -> None:
        seen.append((done, total, stage))
        if len(seen) > 5:
            raise StoppedError

    with pytest.raises(StoppedError):
        half_samples(sheet, method("lle"), method("lle").spec(), range(5), on_progress=stop)
    assert set(seen) <= {(done, 5, "half-samples") for done in range(2)}
    alle = method("alle")
    seen.clear()
    with pytest.raises(StoppedError):
        refits(sheet, alle, alle.spec(ordering="random"), range(9), on_progress=stop)
    assert {stage for _, _, stage in seen} == {"other seeds"}


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
        half_samples(sheet, method("supervised-lle"), method("supervised-lle").spec(), [0])


def test_a_half_in_parts_is_a_problem() -> None:
    """Two far groups of points have no connected graph: places are NaN, with the reason."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[20:] += 1000
    found = half_samples(X, method("lle"), method("lle").spec(n_neighbors=5), [0, 1])
    assert np.isnan(found.places).all()
    assert len(found.problems) == 2
    assert rank_correlation(np.arange(3.0), np.arange(3.0)) == 1
