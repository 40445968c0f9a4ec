"""What a method cannot do is refused with the remedy: by its parameters, by the sizes, and by the data."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from glle_engine import GlleError, fit, manifolds
from glle_engine.audit.audit import audit
from glle_engine.base.errors import (
    DegenerateDataError,
    DisconnectedGraphError,
    InvalidParameterError,
    OutOfRangeError,
    TooFewPointsError,
)
from glle_engine.base.spec import FitSpec
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS, method
from glle_engine.methods.neighbor_embedding.affinities import conditional_affinities, joint_affinities, spectral
from glle_engine.methods.parameters import GraphSpec
from glle_engine.posterior.findings import far_points
from glle_engine.reliability.refits import require_resamplable
from tests.engine.methods.reference import cloud, codes_of, embed, factor_data, values_of, with_slow_ones

OWN = ("sne", "symmetric-sne", "elastic-embedding")
Options = dict[str, Any]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("kernel-pca", {"kernel": "rbf", "degree": 2}, "degree=2 would change nothing with kernel='rbf'"),
        ("auto-k-lle", {"k_least": 9, "k_most": 8}, "k_least of at most k_most"),
        ("auto-reg-lle", {"reg_least": 2.0}, "reg_least of at most reg_most"),
        ("auto-reg-lle", {"n_neighbors": 2}, "leave no residual"),
        ("laplacian-eigenmaps", {"weights": "simple", "epsilon": 1.0}, "epsilon=1 would change nothing with weights="),
        ("laplacian-eigenmaps", {"weights": "precomputed", "n_neighbors": 5}, "Leave n_neighbors out"),
        ("laplacian-eigenmaps", {"weights": "precomputed", "metric": "cosine"}, "Leave metric out"),
        (
            "kernel-pca",
            {"kernel": "precomputed", "gamma": 2.0},
            "gamma=2 would change nothing with kernel='precomputed'",
        ),
        ("umap", {"min_dist": 2}, "min_dist=2 is more than spread=1"),
        ("umap", {"init": "lanczos"}, "one of spectral, pca, random"),
        ("pacmap", {"n_neighbors": 2, "further_ratio": 0.1}, "no further pair"),
        ("glle", {"variant": "published", "noise": "tangent"}, "applies only with variant='constrained'"),
        ("glle", {"variant": "published", "method": "direct", "source": "prior"}, "no prior"),
        ("lle", {"standardize": "minmax"}, "one of none, zscore, robust"),
    ],
)
def test_parameters_that_contradict_each_other(name: str, options: Options, words: str) -> None:
    """A specification with contradicting parameters raises an error."""
    with pytest.raises(InvalidParameterError, match=words):
        METHODS[name].spec(**options)


@pytest.mark.parametrize(
    ("name", "n", "d", "options", "words", "enough"),
    [
        ("meu", 2001, 3, {}, "at most 2,000 points", None),
        ("meu", 30, 3, {"n_neighbors": 29, "multipliers": "any"}, "positive", {"n_neighbors": 29}),
        ("drill", 1001, 3, {"n_neighbors": "all"}, "at most 1,000 points", None),
        ("drill", 3, 3, {"n_neighbors": "all"}, "at least 4 points", None),
        ("mvu", 401, 3, {}, "at most 400 points", None),
        ("mvu", 200, 3, {"n_neighbors": 30}, "n_neighbors of at most 20", {"n_neighbors": 20}),
        ("alle", 30, 3, {"n_neighbors": 10, "reg": 0}, "reg above 0", {"n_neighbors": 10}),
        ("hessian-lle", 100, 3, {"n_neighbors": 9, "n_components": 3}, "at least 10", {"n_neighbors": 10}),
        ("ltsa", 100, 3, {"n_neighbors": 3}, "n_neighbors of at least 4", {"n_neighbors": 4}),
        ("modified-lle", 100, 3, {"n_neighbors": 2, "n_components": 3}, "at least 3", {"n_neighbors": 3}),
        ("lle", 100, 3, {"n_components": 60}, "n_components of at most 59", {"n_components": 59}),
        *(("isomap", 50, 3, {"landmarks": m}, "landmarks from 3 to 50", {"landmarks": 50}) for m in (2, 51)),
        ("isolle", 600, 3, {"n_graph": 600}, "n_graph of at most 599", {"n_graph": 599}),
        ("auto-k-lle", 80, 3, {"k_most": 80}, "k_most of at most 79", {"k_most": 79}),
        ("incremental-lle", 400, 3, {"initial_share": 0.01}, r">= 0\.0275", {"initial_share": 0.0275}),
        ("diffusion-maps", 5000, 3, {"n_neighbors": "all"}, "Truncate it: give n_neighbors", {"n_neighbors": 30}),
        ("diffusion-maps", 300, 3, {"n_neighbors": 300}, "needs at least 301 points", {"n_neighbors": 299}),
        *((name, 30, 3, {"n_components": 3}, "n_components of at most 2", {}) for name in ("ppca", "factor-analysis")),
        *((name, 40, 3, {"perplexity": 14}, "at most 13", {"perplexity": 13}) for name in ("sne", "t-sne")),
        *((name, 4, 3, {}, "at least 5 points", None) for name in ("sne", "t-sne")),
        *((name, 60, 1, {"perplexity": 5.0}, "n_components of at most 1", None) for name in ("sne", "t-sne")),
        ("sne", 30, 3, {"init": "random", "n_components": 30}, "n_components of at most 29", None),
        *((name, 5001, 3, {}, "take t-sne", None) for name in OWN),
        *((name, 5000, 3, {"n_components": 4}, "n_components of at most 3", {}) for name in OWN),
        ("t-sne", 500, 9, {"n_components": 4}, "take symmetric-sne", {"n_components": 3}),
        ("t-sne", 500, 9, {"n_components": 3, "negative_gradient_method": "fft"}, "take symmetric-sne", {}),
        ("umap", 100, 3, {"n_components": 4, "init": "pca"}, "3 dimensions", {}),
        *((name, 12, 3, {}, "points", None) for name in ("umap", "densmap")),
        ("pacmap", 35, 3, {}, "n_neighbors of at most 9", {"n_neighbors": 9}),
        ("pacmap", 9, 3, {"n_neighbors": 9}, "n_neighbors of at most 2", {"n_neighbors": 2}),
        # pacmap looks without end for six candidates for the last of six mid-near points.
        ("pacmap", 11, 3, {"n_neighbors": 2, "mid_near_ratio": 3.0, "further_ratio": 0.5}, "at least 12 points", None),
    ],
)
def test_sizes_that_are_impossible(
    name: str, n: int, d: int, options: Options, words: str, enough: Options | None
) -> None:
    """Impossible sizes raise an error before anything is computed; the parameters of the remedy are accepted."""
    one = METHODS[name]
    with pytest.raises(GlleError, match=words):
        one.require_possible(n, d, one.spec(**options))
    if enough is not None:
        one.require_possible(n, d, one.spec(**enough))


def data_of(kind: str) -> np.ndarray:
    """Return data with the fault of this name."""
    X, line = factor_data(40, 4), np.linspace(0, 1, 50)[:, None] ** 2 * np.ones(2)
    circle = np.exp(2j * np.pi * np.arange(60) / 60)
    kinds = {
        "almost a pair": np.concatenate([cloud(19, 3), cloud(19, 3)[-1:] + 1e-7]),
        "a zero": np.where(np.arange(40)[:, None] == 3, 0.0, X),
        "large": X * 1e10,
        "two points": np.repeat(X[:2], 10, axis=0),
        "crowded": np.repeat(X[:5], 20, axis=0),
        "distances on a line": cdist(line, line),
        "a line": line,
        "a line in five features": X @ np.ones((4, 1)) @ np.ones((1, 5)),
        "a cube": np.stack(np.meshgrid(*[[0.0, 1.0, 2.0]] * 3), axis=-1).reshape(-1, 3),
        "a circle": np.stack([circle.real, circle.imag], axis=1),
        "a sheet": manifolds.make("s_curve", 300, seed=1).X,
    }
    return np.asarray(kinds[kind])


@pytest.mark.parametrize(
    ("name", "kind", "options", "error", "words"),
    [
        ("meu", "almost a pair", {"n_neighbors": 4}, DegenerateDataError, "Round the data"),
        ("mvu", "almost a pair", {"n_neighbors": 4}, DegenerateDataError, "Round the data"),
        ("kernel-pca", "a zero", {"kernel": "cosine"}, DegenerateDataError, "Row 3 \\(counted from 0\\) is 0"),
        ("kernel-pca", "large", {"kernel": "polynomial", "gamma": 1.0, "degree": 30}, OutOfRangeError, "Lower degree"),
        ("kernel-pca", "two points", {}, DegenerateDataError, "span 1 dim"),
        ("mds", "distances on a line", {"dissimilarity": "precomputed"}, DegenerateDataError, "at most 1"),
        ("ppca", "a line in five features", {}, DegenerateDataError, "leaves no dimension for the noise"),
        ("npe", "a line in five features", {}, DegenerateDataError, "n_components of at most 1"),
        ("alle", "a line in five features", {"n_neighbors": 3, "reg": 0}, DegenerateDataError, "Raise reg"),
        ("alle", "a cube", {"n_neighbors": 3, "reg": 0}, DegenerateDataError, "Raise reg"),
        ("isomap", "a line", {"n_neighbors": 3}, DegenerateDataError, "Give fewer components"),
        ("diffusion-maps", "a sheet", {"t": 1_000_000, "epsilon": 1.0}, DegenerateDataError, "Give a smaller t"),
        ("diffusion-maps", "crowded", {}, DegenerateDataError, "remove duplicates"),
        # Cosine and sine of a circle have one eigenvalue: no time leaves one of them out.
        (
            "diffusion-maps",
            "a circle",
            {"t": "auto", "n_components": 1},
            DegenerateDataError,
            "Give t as a number, or n_components=2",
        ),
        ("isolle", "a sheet", {"n_graph": 1, "disconnected": "error"}, DisconnectedGraphError, "smallest n_neighbors"),
    ],
)
def test_data_that_have_no_such_embedding(
    name: str, kind: str, options: Options, error: type[GlleError], words: str
) -> None:
    """Data that a method cannot embed raise an error that names the fault and the remedy."""
    with pytest.raises(error, match=words):
        embed(name, data_of(kind), **options)


CONNECTED = ("lle", "modified-lle", "ltsa", "isomap", "laplacian-eigenmaps", "diffusion-maps")


@pytest.mark.parametrize("name", [*CONNECTED, "meu", "drill", "mvu", "auto-k-lle"])
def test_a_disconnected_graph(name: str) -> None:
    """Two distant sheets raise an error with the smallest k that connects them, with which they are embedded."""
    X = manifolds.make("s_curve", 40, seed=2).X
    apart = np.concatenate([X, X + np.array([30.0, 0, 0])])
    refused: dict[str, Any] = {"disconnected": "error"}
    options = refused if name == "auto-k-lle" else {"n_neighbors": 10, **refused}
    with pytest.raises(DisconnectedGraphError, match="smallest n_neighbors that connects it is") as caught:
        embed(name, apart, **options)
    enough = caught.value.details["smallest_connecting_k"]
    assert enough == 40
    if name in CONNECTED:
        is_bridging = issubclass(METHODS[name].spec, GraphSpec)
        assert ("disconnected='bridge'" if is_bridging else "take the method glle") in caught.value.remedy
        with pytest.raises(DisconnectedGraphError):
            embed(name, apart, n_neighbors=enough - 1, **refused)
        embed("isomap", apart, n_neighbors=enough)


@pytest.mark.parametrize(
    ("place", "value", "words"), [((2, 5), 100.0, "mirror"), ((2, 5), -1.0, "negative"), ((4, 4), 1.0, "diagonal")]
)
def test_matrices_that_are_no_dissimilarities(place: tuple[int, int], value: float, words: str) -> None:
    """MDS names the first entry that is negative, not symmetric, or on the diagonal and not 0."""
    D = cdist(cloud(20, 3), cloud(20, 3))
    D[place] = value
    if value < 0:
        D[place[::-1]] = value
    with pytest.raises(InvalidParameterError, match=words) as caught:
        embed("mds", D, dissimilarity="precomputed")
    assert caught.value.details == {"row": place[0], "column": place[1]}
    with pytest.raises(GlleError, match="20 x 3"):
        embed("mds", D[:, :3], dissimilarity="precomputed")


@pytest.mark.parametrize("name", ["laplacian-eigenmaps", "diffusion-maps"])
def test_the_smallest_bandwidth_of_a_refusal_is_enough(name: str) -> None:
    """The bandwidth that a refusal names connects two far parts, and a slightly smaller one does not."""
    X = manifolds.make("s_curve", 40, seed=1).X
    parts = np.concatenate([X, X + np.array([30.0, 0, 0])])
    options: dict[str, Any] = {"n_neighbors": 79}
    with pytest.raises(InvalidParameterError, match="between 2 parts") as caught:
        embed(name, parts, epsilon=1.0, **options)
    smallest = caught.value.details["smallest"]
    gap = cdist(parts[:40], parts[40:]).min()
    assert np.exp(-(gap**2) / smallest) == pytest.approx(1e-10, rel=0.05)
    assert np.isfinite(embed(name, parts, epsilon=smallest, **options).Y).all()
    with pytest.raises(InvalidParameterError, match="between 2 parts"):
        embed(name, parts, epsilon=0.99 * smallest, **options)


@pytest.mark.parametrize(("name", "option"), [("kernel-pca", "kernel"), ("laplacian-eigenmaps", "weights")])
def test_matrices_of_all_pairs_are_symmetric(name: str, option: str) -> None:
    """The error names the first entry that differs from its mirror image; halves of such data cannot be resampled."""
    K = np.exp(-(cdist(cloud(20, 3), cloud(20, 3)) ** 2))
    one = METHODS[name]
    spec = one.spec(**{option: "precomputed"})
    assert embed(name, K, **{option: "precomputed"}).notes == ()
    broken = K.copy()
    broken[7, 3] += 0.5
    with pytest.raises(InvalidParameterError, match="differs from its mirror image") as caught:
        one.embed(broken, spec)
    assert caught.value.details == {"row": 3, "column": 7}
    with pytest.raises(GlleError, match="20 x 3"):
        one.embed(K[:, :3], spec)
    with pytest.raises(InvalidParameterError, match=f"{option}='precomputed' halves of the data cannot be embedded"):
        require_resamplable(400, 400, one, spec)


def test_given_weights_are_a_connected_graph() -> None:
    """Negative weights are named, disconnected weights and too few points are refused."""
    K = np.exp(-(cdist(cloud(20, 3), cloud(20, 3)) ** 2))
    K[4, 9] = K[9, 4] = -1.0
    with pytest.raises(InvalidParameterError, match=r"X\[4, 9\] = -1 is negative"):
        embed("laplacian-eigenmaps", K, weights="precomputed")
    parts = np.where(np.arange(20)[:, None] // 10 == np.arange(20) // 10, 1.0, 1e-12)
    with pytest.raises(DisconnectedGraphError, match="2 components") as caught:
        embed("laplacian-eigenmaps", parts, weights="precomputed")
    assert caught.value.details == {"components": 2}
    with pytest.raises(TooFewPointsError, match="at least 5 points"):
        embed("laplacian-eigenmaps", cdist(cloud(4, 3), cloud(4, 3)), weights="precomputed")


SMALL = {"max_iter": 60, "early_iter": 20, "perplexity": 8.0, "n_neighbors": 9}


def parameters_of(name: str) -> dict[str, Any]:
    """Return parameters with which the method runs quickly."""
    return {key: value for key, value in SMALL.items() if key in METHODS[name].spec.parameters()}


@pytest.mark.parametrize("name", ["lle", "isomap", "ltsa", "npe", "glle", "sne"])
def test_a_method_embeds_standardized_data(name: str) -> None:
    """standardize="zscore" gives the embedding of data that were standardized before."""
    X = manifolds.make("s_curve", 120, seed=1).X
    a = embed(name, X * [1, 500, 0.01], **parameters_of(name), standardize="zscore")
    b = embed(name, (X - X.mean(axis=0)) / X.std(axis=0), **parameters_of(name))
    np.testing.assert_allclose(cdist(a.Y, a.Y), cdist(b.Y, b.Y), rtol=5e-4, atol=5e-5)


@pytest.mark.parametrize(
    ("name", "options", "way"),
    [
        ("pca", {}, "standardize them"),
        ("isomap", {"standardize": "zscore"}, None),
        ("isomap", {"metric": "cosine"}, None),
        ("glle", {}, "use standardize='zscore'"),
        ("factor-analysis", {}, None),
    ],
)
def test_unequal_scales_of_features_are_noted(name: str, options: dict[str, Any], way: str | None) -> None:
    """Features of unequal scales have one note with the remedy, unless scales do not matter."""
    X = manifolds.make("s_curve", 120, seed=1).X * [1, 1e3, 1]
    messages = [note.message for note in embed(name, X, **options).notes if note.code == "unequal-feature-scales"]
    assert len(messages) == (way is not None)
    assert way is None or way in messages[0]


@pytest.mark.parametrize("name", with_slow_ones(name for name, method in METHODS.items() if method.by_distances))
def test_a_method_embeds_distances(name: str) -> None:
    """A matrix of distances gives the embedding of the points that have these distances."""
    X = manifolds.make("s_curve", 120, seed=1).X
    a = embed(name, X, **parameters_of(name))
    b = embed(name, cdist(X, X), **parameters_of(name), metric="precomputed")
    assert a.Y.shape == b.Y.shape
    assert np.isfinite(b.Y).all()
    if name not in {"t-sne", "sne", "symmetric-sne", "elastic-embedding"}:  # a descent amplifies rounding
        np.testing.assert_allclose(cdist(b.Y, b.Y), cdist(a.Y, a.Y), rtol=5e-5, atol=5e-6)
    with pytest.raises(GlleError, match="square"):
        embed(name, X, **parameters_of(name), metric="precomputed")


def test_the_spectral_start_solves_the_laplacian() -> None:
    """The start is the eigenvectors of L y = lambda D y with the smallest eigenvalues, without the constant."""
    X = np.concatenate([np.random.default_rng(0).random((30, 2)), np.random.default_rng(1).random((30, 2)) + 2])
    joint = joint_affinities(conditional_affinities(X, 9.0)[0])
    degrees = np.diag(joint.sum(axis=1))
    values, _ = eigh(degrees - joint, degrees)
    Y = spectral(joint, 2)
    for column, value in zip(Y.T, values[1:], strict=False):
        np.testing.assert_allclose((degrees - joint) @ column, value * degrees @ column, atol=1e-10)
    assert len(set(np.sign(Y[:30, 0])) | set(np.sign(-Y[30:, 0]))) == 1  # the first one separates the parts


def test_a_method_on_coordinates_refuses_distances() -> None:
    """The error names methods that take distances."""
    with pytest.raises(GlleError, match=r"needs the coordinates of the points.*isomap"):
        embed("ltsa", np.ones((30, 30)) - np.eye(30), metric="precomputed")


N = 150
# Isomap and MDS are functions of distances; LLE is one of weights, which have no unit.
NAMES = ("lle", "isomap", "mds")


def places_of(name: str, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an embedding with twelve neighbors, if the method has neighbors."""
    return embed(name, X, **({} if name == "mds" else {"n_neighbors": 12})).Y


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4)
@given(
    seed=st.integers(0, 200),
    shift=st.integers(-(2**24), 2**24),
    exponent=st.sampled_from([-300, 300]),
    width=st.sampled_from([3, 10, 15, 16, 40]),
    copies=st.integers(1, 6),
)
def test_what_changes_no_embedding(name: str, seed: int, shift: int, exponent: int, width: int, copies: int) -> None:
    """Shifts, rotations, zero features and the order of rows change embeddings at most by rounding, units by a factor.

    Points on a grid of 2^-20 are shifted exactly. The widths are on either side of the limit between the searches.
    Methods that depend on distances only give copies of a point one position.
    """
    rng = np.random.default_rng(seed)
    X = np.round(manifolds.make("s_curve", N, seed=seed).X * 2.0**20) / 2.0**20
    Y, unit, order = places_of(name, X), 2.0**exponent, rng.permutation(N)
    assert disparity(places_of(name, X + shift), Y) < 1e-9
    scaled = places_of(name, X * unit) / (1 if name == "lle" else unit)
    np.testing.assert_allclose(scaled, Y, rtol=0, atol=(1e-9 if name == "mds" else 0) * np.ptp(Y))
    assert disparity(places_of(name, X @ np.linalg.qr(rng.standard_normal((width, 3)))[0].T), Y) < 1e-7
    assert disparity(places_of(name, np.concatenate([X, np.zeros((N, width))], axis=1)), Y) < 1e-9
    assert disparity(places_of(name, X[order]), Y[order]) < 1e-7
    if name != "lle":
        Y = places_of(name, np.concatenate([X, X[order[:copies]]]))
        np.testing.assert_allclose(Y[N:], Y[order[:copies]], atol=1e-6 * np.ptp(Y))


GLLE = method("glle")


@pytest.mark.parametrize("variant", ["constrained", "published"])
def test_is_a_draw_of_the_posterior(sheet: np.ndarray, variant: Any) -> None:
    """The method glle returns draw 0 of seed 0 by default, or the draw that its parameters name."""
    posterior = fit(sheet, variant=variant)
    embedding, draw = GLLE.embed(sheet, GLLE.spec(variant=variant)), posterior.draw(0)
    assert np.array_equal(embedding.Y, draw.embedding)
    assert np.array_equal(values_of(embedding), draw.eigenvalues)
    assert embedding.figures == {**posterior.diagnostics.figures, "draw": draw.diagnostics}
    assert embedding.notes == posterior.diagnostics.notes
    assert bool(embedding.notes) == (variant == "published")
    assert {"neighbors", "weights", "embedding", "posterior", "diagnostics", "draw"} <= set(embedding.seconds)
    asked: Any = {"index": 7, "seed": 2**64 - 1, "scale": 0.5, "source": "prior"}
    other = GLLE.embed(sheet, GLLE.spec(variant=variant, **asked))
    assert np.array_equal(other.Y, posterior.draw(asked.pop("index"), **asked).embedding)


def test_has_all_parameters_of_a_fit_with_their_defaults() -> None:
    """The method glle has every parameter of a fit, with the same default."""
    assert GLLE.spec().fit_spec() == FitSpec()
    assert {one.name for one in fields(FitSpec)} < set(GLLE.spec.parameters())
    asked = {"variant": "published", "method": "direct", "mean": "derived", "n_neighbors": 7}
    assert GLLE.spec(**asked).fit_spec() == FitSpec.from_dict(asked)


def test_at_scale_zero_is_lle(sheet: np.ndarray) -> None:
    """The method glle with scale=0 returns the embedding by LLE."""
    lle = method("lle").embed(sheet).Y
    np.testing.assert_allclose(GLLE.embed(sheet, GLLE.spec(scale=0)).Y, lle, atol=1e-5)


def test_a_far_point_is_named() -> None:
    """A point far from all others is named in a note or in the remedy of an error, also in a fit and an audit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    X[7] = 1e6
    for name in ("pca", "alle", "lle", "sne", "modified-lle", "laplacian-eigenmaps", "isomap", "meu", "robust-lle"):
        try:
            said = method(name).embed(X).notes[0].message
        except GlleError as error:
            said = error.remedy
        assert said.startswith("Point 7 lies"), (name, said)
    assert "collapsed" not in codes_of(method("pca").embed(X))
    assert "far-points" in [note.code for note in fit(X).notes]
    assert "far-points" in [note.code for note in audit(X, X[:, :2]).notes]
    assert far_points(np.concatenate([X, X[:60] + 1e7])) == [], "many such points are no exceptions"
    assert far_points(rng.normal(size=(50, 3))) == []
