"""Embeddings of random halves: each depends on its stream, seed and number only, for everything that embeds."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from glle_engine import FitSpec, Posterior, fit
from glle_engine.base.errors import DisconnectedGraphError, GlleError, InvalidParameterError, MissingLibraryError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import METHODS, Method, method
from glle_engine.reliability.refits import MethodEmbedder, affine_map, require_resamplable, shrunk
from glle_engine.reliability.resamples import (
    HALVES,
    SEPARATE,
    FunctionEmbedder,
    PosteriorEmbedder,
    Stream,
    draw_sample,
    resample,
)
from tests.engine.methods.reference import with_slow_ones


@pytest.fixture(scope="module")
def embed(sheet: NDArray[np.float64], posterior: Posterior) -> PosteriorEmbedder:
    """Return the embedder of halves of the sheet by its posterior."""
    return PosteriorEmbedder.from_posterior(posterior, sheet)


def refit(X: NDArray[np.float64], name: str, **options: Any) -> MethodEmbedder[Any]:
    """Return the embedder of halves of X by a method with these parameters."""
    return MethodEmbedder(X, method(name), method(name).spec.from_dict(options))


EMBEDDERS: dict[str, Any] = {
    "posterior": lambda X: PosteriorEmbedder.from_posterior(fit(X), X),
    "posterior of landmarks": lambda X: PosteriorEmbedder.from_posterior(fit(X, landmarks=120), X),
    "function": lambda X: FunctionEmbedder(lambda points: points[:, :2] ** 3, X),
    "lle": lambda X: refit(X, "lle"),
    "alle": lambda X: refit(X, "alle"),
    "symmetric-sne": lambda X: refit(X, "symmetric-sne", max_iter=20, perplexity=10),
}


def test_an_affine_map_is_found_by_its_values() -> None:
    """The affine map of given positions is found; if there are several, the one with the smallest components."""
    rng = np.random.default_rng(0)
    A, b, X, new = rng.standard_normal((2, 5)), np.array([7.0, -3.0]), rng.random((30, 5)), rng.random((4, 5))
    np.testing.assert_allclose(affine_map(X, X @ A.T + b).transform(new), new @ A.T + b, atol=1e-10)
    few = affine_map(X[:3], X[:3] @ A.T + b)
    np.testing.assert_allclose(few.transform(X[:3]), X[:3] @ A.T + b, atol=1e-10)
    expected = (X[:3] - X[:3].mean(axis=0)) @ A.T
    np.testing.assert_allclose(few.components, (np.linalg.pinv(X[:3] - X[:3].mean(axis=0)) @ expected).T, atol=1e-10)


CASES = [(name, HALVES) for name in EMBEDDERS]
CASES += [("posterior", SEPARATE), ("symmetric-sne", SEPARATE)]


@pytest.mark.parametrize(("name", "stream"), CASES, ids=lambda one: getattr(one, "name", one))
def test_ranges_have_the_bits_of_one_computation(sheet: NDArray[np.float64], name: str, stream: Stream) -> None:
    """Resamples have the same bits in one range, in several ranges, and by several threads."""
    again = EMBEDDERS[name](sheet[::2])
    whole = resample(again, 4, stream=stream, seed=1)
    assert whole.places.shape == (4, 200, 2)
    assert whole.problems == ()
    assert np.isfinite(whole.places).all()
    parts = [resample(again, count, stream=stream, first=first, seed=1) for first, count in ((0, 2), (2, 0), (2, 2))]
    assert (parts[0] + parts[1] + parts[2]).places.tobytes() == whole.places.tobytes()
    with ThreadPoolExecutor(2) as threads:
        assert resample(again, 4, stream=stream, seed=1, executor=threads).places.tobytes() == whole.places.tobytes()
    assert len({place.tobytes() for place in whole.places}) == 4
    assert not np.array_equal(whole.places[0], resample(again, 1, stream=stream, seed=2).places[0])


def test_samples_are_functions_of_their_address(embed: PosteriorEmbedder) -> None:
    """Halves have n / 2 points and differ by seed, stream and number; pairs have no common point; blocks stay whole."""
    samples = [
        draw_sample(embed, stream, seed, j)
        for stream in (HALVES, SEPARATE)
        for seed in range(3)
        for j in range(0, 9, 2)
    ]
    for sample in samples:
        assert len(sample.chosen) == 200
        assert np.array_equal(np.sort(np.concatenate([sample.chosen, sample.others])), np.arange(400))
    assert len({sample.chosen.tobytes() for sample in samples}) == len(samples)
    pairs = [draw_sample(embed, SEPARATE, 0, j).chosen for j in range(4)]
    assert not np.intersect1d(pairs[0], pairs[1]).size
    assert not np.array_equal(pairs[0], pairs[2])
    assert [half[:4].tolist() for half in pairs[:2]] == [[0, 1, 3, 5], [2, 4, 7, 8]], "in every version"
    odd = embed.of_rows(np.arange(101))
    first, second = (draw_sample(odd, SEPARATE, 0, j).chosen for j in range(2))
    assert (len(first), len(second), np.intersect1d(first, second).size) == (50, 50, 0)
    in_fives = replace(embed, blocks=np.arange(len(embed.rows)) // 5).of_rows(np.arange(325))
    first, second = (draw_sample(in_fives, SEPARATE, 0, j).chosen for j in range(2))
    assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(325)), "of whole blocks, 32 and 33"
    assert (len(first), set(np.bincount(first // 5))) == (160, {0, 5})


@pytest.mark.parametrize("stream", [HALVES, SEPARATE], ids=str)
def test_one_search_finds_the_neighbors_in_every_sample(
    embed: PosteriorEmbedder, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbors from the search among all points give the bits of a search in each half."""
    search, embed = Mock(wraps=kneighbors), replace(embed)
    monkeypatch.setattr("glle_engine.reliability.resamples.kneighbors", search)
    maps = resample(embed, 6, stream=stream).places
    search.assert_called_once()
    monkeypatch.setattr(PosteriorEmbedder, "_nearest_chosen", lambda *_: None)
    assert maps.tobytes() == resample(embed, 6, stream=stream).places.tobytes()


def test_a_resample_of_a_posterior_is_turned_to_the_reference(embed: PosteriorEmbedder) -> None:
    """If the reference is rotated, each resample is rotated alike."""
    turn = np.linalg.qr(np.random.default_rng(4).standard_normal((2, 2)))[0]
    for one in (embed, embed.of_rows(np.arange(50, 400))):
        turned = resample(replace(one, reference=one.reference @ turn), 2).places
        np.testing.assert_allclose(turned, resample(one, 2).places @ turn, atol=1e-9)


def test_a_function_embeds_its_samples(sheet: NDArray[np.float64]) -> None:
    """Points of a half are where the function puts them; the others are near where a linear function would."""
    again = FunctionEmbedder(lambda points: points[:, :1], sheet, n_components=1)
    place, chosen = resample(again, 1, strict=True).places[0], draw_sample(again, HALVES, 0, 0).chosen
    np.testing.assert_array_equal(place[chosen], sheet[chosen, :1])
    assert np.abs(place - sheet[:, :1]).mean() < 0.05 * sheet[:, 0].std()


@pytest.mark.parametrize(("name", "stream"), [("posterior", SEPARATE), ("lle", HALVES)])
def test_progress_can_cancel(sheet: NDArray[np.float64], name: str, stream: Stream) -> None:
    """Progress is reported within a resample, too, and an exception of the callback ends the computation."""
    reports: list[tuple[int, int, str]] = []

    def stop(done: int, total: int, stage: str) -> None:
        reports.append((done, total, stage))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resample(EMBEDDERS[name](sheet), 9, stream=stream, on_progress=stop)
    assert list(dict.fromkeys(reports)) == [(done, 9, stream.name) for done in range(3)]
    assert len(reports) > 3


def test_impossible_resamples_are_refused(embed: PosteriorEmbedder) -> None:
    """Too few points, negative numbers and numbers beyond the stream are refused with value and remedy."""
    few = np.random.default_rng(0).random((15, 3))
    posterior = PosteriorEmbedder(few, FitSpec(n_neighbors=8), np.zeros((15, 2)))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (embed, {"count": -3}, "count=-3"),
        (embed, {"seed": -1}, "seed=-1"),
        (embed, {"first": 2**32}, "another"),
        (posterior, {}, r"Half of 15 points .* n_neighbors=8.*below 6"),
        (FunctionEmbedder(lambda points: points[:, :2], few), {}, "15 points are too few"),
    ]
    for one, wrong, words in cases:
        with pytest.raises(InvalidParameterError, match=words):
            resample(one, **{"count": 1, **wrong})


@pytest.mark.parametrize("name", with_slow_ones(METHODS))
def test_every_method_is_resampled(curve: np.ndarray, name: str) -> None:
    """Each method embeds halves and places the other points at finite positions."""
    one = METHODS[name]
    few = {"perplexity": 10, "max_iter": 60}
    spec = one.spec.from_dict({key: few[key] for key in few.keys() & one.spec.parameters() if name != "glle"})
    try:
        one.require_available()
    except MissingLibraryError:
        pytest.skip("its library is not installed")
    if one.needs_labels(spec):
        pytest.skip("other samples have no labels")
    resamples = resample(MethodEmbedder(curve, one, spec), 2)
    assert resamples.places.shape == (2, 120, 2)
    assert len(resamples.problems) + len(resamples.embeddings) == 2
    assert len(resamples.embeddings), resamples.problems


@pytest.mark.parametrize("name", ["pca", "ppca", "npe", "mds", "factor-analysis", "kernel-pca"])
def test_linear_methods_place_by_their_projection(curve: np.ndarray, name: str) -> None:
    """A linear method places points outside the half by one affine map."""
    embed = refit(curve, name, **({"kernel": "linear"} if name == "kernel-pca" else {}))
    places = resample(embed, 1).places[0]
    half = draw_sample(embed, HALVES, 0, 0).chosen
    design = np.column_stack([np.ones(len(curve)), curve])
    fitted = design @ np.linalg.lstsq(design[half], places[half], rcond=None)[0]
    assert np.abs(fitted - places).max() <= 1e-8 * np.abs(places).max()
    alone = embed.method.embed(curve[half], replace(embed.spec, **shrunk(embed.spec))).Y
    assert np.array_equal(places[half], alone)


def test_distances_are_as_good_as_points(curve: np.ndarray) -> None:
    """Halves of a distance matrix, or of some of its points, are embedded as halves of the points."""
    D, some = cdist(curve, curve), np.arange(3, len(curve))
    points = refit(curve, "isomap", n_neighbors=8)
    matrix = refit(D, "isomap", n_neighbors=8, metric="precomputed")
    for one, other in ((points, matrix), (points.of_rows(some), matrix.of_rows(some))):
        places, again = (resample(embed, 1).places[0] for embed in (one, other))
        apart = cdist(places, places)
        np.testing.assert_allclose(cdist(again, again), apart, rtol=0, atol=1e-6 * apart.max())
    assert resample(refit(D, "mds", dissimilarity="precomputed"), 1).problems == ()


def test_a_method_with_a_seed_has_another_one_in_each_half(curve: np.ndarray) -> None:
    """Half j has the seed of the parameters plus 1 + j."""
    alle = refit(curve, "alle", order="random", seed=4)
    places, chosen = resample(alle, 2).places, draw_sample(alle, HALVES, 0, 1).chosen
    spec = replace(alle.spec, seed=6, **shrunk(alle.spec))
    assert np.array_equal(places[1][chosen], alle.method.embed(curve[chosen], spec).Y)


def test_an_embedder_goes_to_other_processes(curve: np.ndarray) -> None:
    """An embedder can be pickled, with its data, its method and its parameters."""
    embed = refit(curve, "t-sne")
    again = pickle.loads(pickle.dumps(embed))  # noqa: S301 # written here
    assert (again.method, again.spec, again.X.tobytes()) == (embed.method, embed.spec, embed.X.tobytes())


def test_counts_shrink() -> None:
    """Numbers of neighbors are divided by the root of two and rounded up, but do not fall below 5."""
    assert shrunk(method("lle").spec(n_neighbors=10)) == {"n_neighbors": 8}
    assert shrunk(method("lle").spec(n_neighbors=4)) == {"n_neighbors": 4}
    assert shrunk(method("t-sne").spec(perplexity=30))["perplexity"] == pytest.approx(30 / np.sqrt(2))
    assert "n_neighbors" not in shrunk(method("diffusion-maps").spec(n_neighbors="all"))
    assert shrunk(method("pca").spec()) == {}
    assert shrunk(method("t-sne").spec(perplexity=30), 0.632)["perplexity"] == pytest.approx(30 * np.sqrt(0.632))


@pytest.mark.parametrize(
    ("n", "k", "words", "enough"),
    [
        (19, 5, "19 points are too few", None),
        (60, 50, "half of the 60 points", 30),
    ],
)
def test_refusals(curve: np.ndarray, n: int, k: int, words: str, enough: int | None) -> None:
    """If a method cannot embed half of the points, the error comes first and has sizes and remedy."""
    lle: Method[Any] = method("lle")
    with pytest.raises(GlleError, match=words):
        require_resamplable(n, 3, lle, lle.spec(n_neighbors=k))
    if enough:
        require_resamplable(n, 3, lle, lle.spec(n_neighbors=enough))
    with pytest.raises(InvalidParameterError, match="uses labels, but an audit has no labels"):
        resample(refit(curve, "supervised-lle"), 1)


@pytest.mark.parametrize("name", ["lle", "ltsa"])
def test_a_half_in_parts_is_joined_or_a_problem(name: str) -> None:
    """If the graph of a half is disconnected, it is joined, or the positions are NaN and the reason is kept."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[20:] += 1000
    assert np.isfinite(resample(refit(X, name, n_neighbors=5), 2, strict=True).places).all()
    embed = refit(X, name, n_neighbors=5, disconnected="error")
    resamples = resample(embed, 2)
    assert np.isnan(resamples.places).all()
    assert len(resamples.problems) == 2
    with pytest.raises(DisconnectedGraphError):
        resample(embed, 2, strict=True)
