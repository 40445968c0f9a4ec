"""Sparse data: the neighbors and the numbers of the same dense data, without making them dense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix
from scipy.spatial.distance import cdist
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import kneighbors_graph

from glle_engine import FitSpec, GlleError, fit
from glle_engine.estimator import GLLE
from glle_engine.graph.neighbors import kneighbors, kneighbors_to
from glle_engine.graph.relations import locate
from glle_engine.graph.sparse import SparsePoints
from glle_engine.methods import method
from glle_engine.metrics.ranks import disparity
from glle_engine.posterior.selection import advise
from glle_engine.reliability.calibration import calibrate

if TYPE_CHECKING:
    from numpy.typing import NDArray

METRICS = ["euclidean", "cosine", "correlation"]


def counts(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    """Return counts (n, d) of words whose frequencies follow two coordinates of a text."""
    rng = np.random.default_rng(seed)
    apart = ((rng.random((n, 1, 2)) - rng.random((d, 2))) ** 2).sum(axis=2)
    shares = np.exp(-12 * apart)
    return np.stack([rng.multinomial(30, share) for share in shares / shares.sum(axis=1, keepdims=True)]).astype(float)


@pytest.fixture(scope="module")
def weighted() -> NDArray[np.float64]:
    """Return weighted counts (250, 150): no two distances are equal."""
    X = counts(250, 150)
    return np.asarray(X * np.random.default_rng(1).uniform(0.5, 1.5, X.shape))


@pytest.mark.parametrize(
    ("metric", "method_", "variance"),
    [("euclidean", "em", "auto"), ("cosine", "direct", "ml"), ("correlation", "em", "auto")],
)
def test_the_posterior_is_that_of_dense_data(
    weighted: NDArray[np.float64], metric: Any, method_: Any, variance: Any
) -> None:
    """Equal neighbors; weights, embeddings, draws and new points to 1e-9."""
    spec = FitSpec(metric=metric, method=method_, variance=variance, n_neighbors=8)
    sparse, dense = fit(csr_array(weighted), spec), fit(weighted, spec)
    np.testing.assert_array_equal(sparse.neighbors, dense.neighbors)
    for name, array in sparse.arrays().items():
        np.testing.assert_allclose(array, dense.arrays()[name], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sparse.draw(3).embedding, dense.draw(3).embedding, atol=1e-8)
    new = weighted[:30] * np.random.default_rng(2).uniform(0.9, 1.1, (30, 150))
    placed = sparse.extend(csr_array(weighted), csr_array(new))
    expected = dense.extend(weighted, new)
    np.testing.assert_array_equal(placed.neighbors, expected.neighbors)
    np.testing.assert_allclose(placed.weights, expected.weights, atol=1e-9)
    np.testing.assert_allclose(placed.distances, expected.distances, atol=1e-9)
    np.testing.assert_array_equal(sparse.transform(csr_array(weighted), weighted), sparse.embedding)
    for name, figure in dense.diagnostics.figures.items():
        if isinstance(figure, (int, float)) and not name.startswith("trustworthiness"):  # of dense data alone
            assert sparse.diagnostics.figures[name] == pytest.approx(figure, rel=1e-7), name
    assert sparse.diagnostics.figures["stored_entries"] == np.count_nonzero(weighted)


@pytest.mark.parametrize("metric", METRICS)
def test_the_search_is_exact(metric: Any) -> None:
    """The smallest (distance, index), in blocks; ties of counts and of copies by index, as in dense data."""
    X = counts(300, 40)
    X[200:240] = X[7]
    data = locate(csr_array(X), FitSpec(metric=metric, n_neighbors=12))
    assert isinstance(data, SparsePoints)
    nearest, distances = kneighbors(data, 12)
    names = {"euclidean": "euclidean", "cosine": "cosine", "correlation": "correlation"}
    apart = cdist(X, X, names[metric])
    np.fill_diagonal(apart, np.inf)
    np.testing.assert_allclose(np.take_along_axis(apart, nearest, axis=1), np.sort(apart, axis=1)[:, :12], atol=1e-12)
    copies = [j for j in [7, *range(200, 240)] if j != 215][:12]
    assert sorted(nearest[215]) == copies
    assert not distances[215].any()
    if metric == "euclidean":
        np.testing.assert_array_equal(nearest, kneighbors(X, 12)[0])


def test_many_blocks_find_the_same(weighted: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a block changes no bit."""
    expected = fit(csr_array(weighted), metric="correlation")
    monkeypatch.setattr("glle_engine.graph.sparse._BLOCK_ENTRIES", 1000)
    smaller = fit(csr_array(weighted), metric="correlation")
    np.testing.assert_array_equal(smaller.neighbors, expected.neighbors)
    np.testing.assert_allclose(smaller.embedding, expected.embedding, atol=1e-12)


def test_each_format_gives_the_same_bits(weighted: NDArray[np.float64]) -> None:
    """Rows, columns, triplets, unsorted, repeated and stored zeros; the caller's arrays stay as they are."""
    expected = fit(csr_array(weighted)).embedding.tobytes()
    row, column = np.nonzero(weighted)
    order = np.random.default_rng(3).permutation(len(row))
    halves = np.tile(weighted[row, column][order] / 2, 2)
    entries = (
        np.append(halves, 0.0),
        (np.append(np.tile(row[order], 2), 0), np.append(np.tile(column[order], 2), np.argmin(weighted[0]))),
    )
    triplets = coo_array(entries, shape=weighted.shape)
    for form in (csr_matrix(weighted), csc_matrix(weighted), triplets):
        stored = form.data.copy()
        assert fit(form).embedding.tobytes() == expected
        np.testing.assert_array_equal(form.data, stored)
    assert fit(csr_array(weighted * 2.0**700)).embedding.tobytes() == expected
    whole = counts(200, 60)
    assert fit(csr_array(whole.astype(np.int8))).embedding.tobytes() == fit(csr_array(whole)).embedding.tobytes()


def test_the_data_are_never_dense() -> None:
    """A million features, of which each point has some: dense rows would take 2 GB."""
    X = counts(250, 150)
    wide = csr_array(X)
    wide = csr_array((wide.data, wide.indices * 6_667, wide.indptr), shape=(250, 1_000_000))
    posterior = fit(wide, metric="cosine")
    np.testing.assert_array_equal(posterior.neighbors, fit(csr_array(X), metric="cosine").neighbors)
    assert posterior.diagnostics.figures["constant_features"] == []
    np.testing.assert_array_equal(posterior.transform(wide, wide), posterior.embedding)


def test_texts_are_embedded_by_their_words() -> None:
    """The output of TfidfVectorizer goes into fit and into the estimator, whose dtype is that of the data."""
    rng = np.random.default_rng(4)
    words = np.array([f"w{j}" for j in range(60)])
    texts = [" ".join(words[(rng.normal(place, 4, 25).astype(int)) % 60]) for place in np.linspace(0, 45, 150)]
    X = TfidfVectorizer().fit_transform(texts)
    posterior = fit(X, metric="cosine", n_components=1)
    order = np.argsort(posterior.embedding[:, 0])
    assert abs(np.corrcoef(order, np.arange(150))[0, 1]) > 0.9
    model = GLLE(metric="cosine").fit(X.astype(np.float32))
    assert model.embedding_.dtype == model.transform(X[:5].astype(np.float32)).dtype == np.float32
    assert model.sample(2, X=X[:3]).shape == (2, 3, 2)


def test_calibration_is_that_of_dense_data(weighted: NDArray[np.float64]) -> None:
    """Half-samples are taken of the sparse rows."""
    sparse, dense = fit(csr_array(weighted)), fit(weighted)
    a = calibrate(sparse, csr_array(weighted), n_half_samples=4, n_draws=4)
    b = calibrate(dense, weighted, n_half_samples=4, n_draws=4)
    np.testing.assert_allclose(a.half_sample_spread, b.half_sample_spread, atol=1e-7)
    assert a.scale == pytest.approx(b.scale, rel=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_given_neighbors_and_bridges(weighted: NDArray[np.float64], metric: Any) -> None:
    """Both need single distances of sparse rows."""
    graph = kneighbors_graph(weighted, 6, metric="cityblock")
    sparse, dense = (fit(X, neighbors=graph, metric=metric) for X in (csr_array(weighted), weighted))
    np.testing.assert_allclose(sparse.embedding, dense.embedding, atol=1e-9)
    apart = np.zeros((100, 300))
    apart[:50, :150], apart[50:, 150:] = weighted[:50], weighted[50:100]
    apart[:, 0] += 0.01 * np.random.default_rng(5).random(100)  # distances of the parts differ
    sparse, dense = (fit(X, metric=metric, n_neighbors=4, disconnected="bridge") for X in (csr_array(apart), apart))
    assert sparse.diagnostics.figures["bridges"] == dense.diagnostics.figures["bridges"]
    assert sparse.diagnostics.figures["bridges"] or metric == "euclidean"
    if metric == "cosine":
        with pytest.raises(GlleError, match="2 components"):
            fit(csr_array(apart), metric="cosine", n_neighbors=4, disconnected="error")


@pytest.mark.parametrize("name", ["lle", "isomap", "laplacian-eigenmaps", "glle", "t-sne"])
def test_methods_on_neighbors_take_sparse_data(weighted: NDArray[np.float64], name: str) -> None:
    """With the embedding of dense data."""
    if name == "t-sne":
        pytest.importorskip("openTSNE")
    chosen = method(name)
    parameters = {"perplexity": 15, "early_iter": 0, "n_iter": 1} if name == "t-sne" else {}
    spec = chosen.spec(metric="cosine", **parameters)
    sparse, dense = chosen.embed(csr_array(weighted), spec), chosen.embed(weighted, spec)
    assert disparity(sparse.Y, dense.Y) < 1e-8
    np.testing.assert_allclose(sparse.Y.std(axis=0), dense.Y.std(axis=0), rtol=1e-5)


@pytest.mark.parametrize("name", ["pca", "umap", "sne"])
def test_other_methods_refuse_sparse_data(weighted: NDArray[np.float64], name: str) -> None:
    """With the remedy, before any work; and so does advice."""
    with pytest.raises(GlleError, match=r"no sparse data.*toarray\(\).*TruncatedSVD"):
        method(name).embed(csr_array(weighted))
    with pytest.raises(GlleError, match=r"sparse matrix of shape \(250, 150\).*TruncatedSVD"):
        advise(csr_array(weighted))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"standardize": "zscore"}, r"centres columns takes no sparse data.*with_mean=False"),
        ({"metric": "hamming"}, "metric='hamming' takes no sparse data.*column of 0 and 1"),
        ({"metric": "precomputed"}, "neighbors=graph"),
        ({"variant": "published"}, r"variant='published' takes no sparse data.*TruncatedSVD"),
        ({"noise": "tangent"}, r"toarray\(\)"),
        ({"neighborhoods": "adaptive"}, r"toarray\(\)"),
        ({"search": "approximate"}, r"search='approximate' takes no sparse data.*toarray\(\)"),
        ({"landmarks": 60}, r"landmarks=60 takes no sparse data.*toarray\(\)"),
    ],
)
def test_options_that_need_dense_data_are_refused(
    weighted: NDArray[np.float64], parameters: dict[str, Any], words: str
) -> None:
    """Each with its remedy."""
    with pytest.raises(GlleError, match=words):
        fit(csr_array(weighted), **parameters)


def test_wrong_rows_are_named(weighted: NDArray[np.float64]) -> None:
    """As in dense data: infinity, rows without a direction, equal rows, numbers that are none."""
    X = weighted.copy()
    X[7, np.flatnonzero(X[7])[2]] = np.inf
    with pytest.raises(GlleError, match=rf"X\[7, {np.flatnonzero(X[7])[2]}\] is inf"):
        fit(csr_array(X))
    X[7] = 0
    for metric in ("cosine", "correlation"):
        with pytest.raises(GlleError, match=r"Row 7 .*; 1 of 250 rows are such"):
            fit(csr_array(X), metric=metric)
    fit(csr_array(X), disconnected="bridge")
    with pytest.raises(GlleError, match="All 30 points are equal"):
        fit(csr_array(np.ones((30, 4))))
    with pytest.raises(GlleError, match="All 30 points are equal"):
        method("lle").embed(csr_array((30, 4)))
    with pytest.raises(GlleError, match="type complex128"):
        fit(csr_array(np.eye(30) * 1j))
    with pytest.raises(GlleError, match=r"have shape \(5, 0\)"):
        fit(csr_array((5, 0)))


def test_other_training_data_are_refused(weighted: NDArray[np.float64]) -> None:
    """Other entries, other columns, and the dense form, which has another digest."""
    posterior = fit(csr_array(weighted))
    with pytest.raises(GlleError, match=r"not those of the fit.*sparse if they were sparse"):
        posterior.transform(csr_array(weighted * 2), csr_array(weighted))
    with pytest.raises(GlleError, match="not those of the fit"):
        posterior.transform(weighted, weighted)
    with pytest.raises(GlleError, match="new points"):
        posterior.transform(csr_array(weighted), weighted[:, :20])
    with pytest.raises(GlleError, match="not sparse enough"):
        posterior.reconstruct(csr_array(weighted), posterior.mean)
    np.testing.assert_array_equal(fit(weighted).transform(weighted, csr_array(weighted)), fit(weighted).embedding)
    with pytest.raises(GlleError, match="far from the training data"):
        posterior.transform(csr_array(weighted), csr_array(weighted * 2.0**600))


def test_squares_that_underflow_are_refused() -> None:
    """As in dense data, instead of ties at distance 0."""
    X = np.random.default_rng(0).random((30, 5)) * 2.0**-700
    X[0, 0] = 1
    with pytest.raises(GlleError, match="leave the range"):
        fit(csr_array(X))


def test_new_points_have_the_nearest_of_some_rows(weighted: NDArray[np.float64]) -> None:
    """Another set of points than the known ones, without leaving any out."""
    data = SparsePoints.of(csr_array(weighted), "correlation")
    nearest, distances = kneighbors_to(data[np.arange(200)], data[np.arange(200, 250)], 5)
    apart = np.sqrt(2 * cdist(weighted[200:], weighted[:200], "correlation"))
    np.testing.assert_array_equal(nearest, np.argsort(apart, axis=1)[:, :5])
    np.testing.assert_allclose(distances, np.sort(apart, axis=1)[:, :5], atol=1e-12)
