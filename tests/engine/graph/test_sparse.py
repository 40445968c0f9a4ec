"""Sparse data: the neighbors and the numbers of the same dense data, without making them dense."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph

from glle_engine import FitSpec, GlleError, fit
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import locate
from glle_engine.graph.sparse import SparsePoints
from glle_engine.methods import method
from glle_engine.metrics.ranks import disparity
from glle_engine.reliability.calibration import calibrate


def counts(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    """Return counts (n, d) of words whose frequencies follow two coordinates of a text."""
    rng = np.random.default_rng(seed)
    apart = ((rng.random((n, 1, 2)) - rng.random((d, 2))) ** 2).sum(axis=2)
    shares = np.exp(-12 * apart)
    return np.stack([rng.multinomial(30, share) for share in shares / shares.sum(axis=1, keepdims=True)]).astype(float)


@pytest.fixture(scope="module")
def matrix() -> NDArray[np.float64]:
    """Return weighted counts (250, 150), no two of whose distances are equal."""
    X = counts(250, 150)
    return np.asarray(X * np.random.default_rng(1).uniform(0.5, 1.5, X.shape))


@pytest.mark.parametrize(
    "options", [{"metric": "cosine", "method": "direct", "variance": "ml"}, {}, {"metric": "correlation"}]
)
def test_the_posterior_is_that_of_dense_data(
    matrix: NDArray[np.float64], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbors are those of a dense fit; weights, embeddings, draws, new points and calibrations agree to rounding."""
    monkeypatch.setattr("glle_engine.graph.sparse._BLOCK_ENTRIES", 1000)
    rows, spec = csr_array(matrix), FitSpec(n_neighbors=8, **options)
    sparse, dense = fit(rows, spec), fit(matrix, spec)
    np.testing.assert_array_equal(sparse.neighbors, dense.neighbors)
    for name, array in sparse.arrays().items():
        np.testing.assert_allclose(array, dense.arrays()[name], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sparse.draw(3).embedding, dense.draw(3).embedding, atol=1e-8)
    new = matrix[:30] * np.random.default_rng(2).uniform(0.9, 1.1, (30, 150))
    placed, expected = sparse.extend(rows, csr_array(new)), dense.extend(matrix, new)
    for part in ("neighbors", "weights", "distances"):
        np.testing.assert_allclose(getattr(placed, part), getattr(expected, part), atol=1e-9)
    np.testing.assert_array_equal(sparse.transform(rows, matrix), sparse.embedding)
    for name, figure in dense.diagnostics.figures.items():
        if isinstance(figure, (int, float)) and not name.startswith("trustworthiness"):  # of dense data alone
            assert sparse.diagnostics.figures[name] == pytest.approx(figure, rel=1e-7), name
    assert sparse.diagnostics.figures["stored_entries"] == np.count_nonzero(matrix)
    scales = [calibrate(p, X, n_resamples=4, n_draws=4).scale for p, X in ((sparse, rows), (dense, matrix))]
    assert scales[0] == pytest.approx(scales[1], rel=1e-6)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "correlation"])
def test_the_search_is_exact(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbors are the smallest (distance, index), as of dense data, also for tied counts and copies, in any blocks.

    The distance of a pair is computed only if its bound does not rule it out as a neighbor.
    """
    apart_of, pairs = SparsePoints._apart, list[int]()

    def counted(self: SparsePoints, points: SparsePoints, item: Any, near: Any) -> Any:
        pairs.append(len(item))
        return apart_of(self, points, item, near)

    monkeypatch.setattr(SparsePoints, "_apart", counted)
    X = counts(300, 40)
    X[200:240] = X[7]
    data = locate(csr_array(X), FitSpec(metric=metric, n_neighbors=12))
    assert isinstance(data, SparsePoints)
    nearest, distances = kneighbors(data, 12)
    apart = cdist(X, X, metric)
    np.fill_diagonal(apart, np.inf)
    assert sum(pairs) <= (apart <= np.sort(apart, axis=1)[:, 11:12] + 1e-9).sum()
    np.testing.assert_allclose(np.take_along_axis(apart, nearest, axis=1), np.sort(apart, axis=1)[:, :12], atol=1e-12)
    copies = [j for j in [7, *range(200, 240)] if j != 215][:12]
    assert sorted(nearest[215]) == copies
    assert not distances[215].any()
    if metric == "euclidean":
        np.testing.assert_array_equal(nearest, kneighbors(X, 12)[0])


def test_each_format_gives_the_same_bits(matrix: NDArray[np.float64]) -> None:
    """All sparse formats, with unsorted, repeated or stored zero entries, give the same fit, and stay unchanged."""
    expected = fit(csr_array(matrix)).embedding.tobytes()
    row, column = np.nonzero(matrix)
    order = np.random.default_rng(3).permutation(len(row))
    halves = np.tile(matrix[row, column][order] / 2, 2)
    entries = (
        np.append(halves, 0.0),
        (np.append(np.tile(row[order], 2), 0), np.append(np.tile(column[order], 2), np.argmin(matrix[0]))),
    )
    triplets = coo_array(entries, shape=matrix.shape)
    for form in (csr_matrix(matrix), csc_matrix(matrix), triplets):
        stored = form.data.copy()
        assert fit(form).embedding.tobytes() == expected
        np.testing.assert_array_equal(form.data, stored)
    assert fit(csr_array(matrix * 2.0**700)).embedding.tobytes() == expected


def test_the_data_are_never_dense() -> None:
    """A million features with few entries are fitted; dense rows would take 2 GB."""
    X = counts(250, 150)
    wide = csr_array(X)
    wide = csr_array((wide.data, wide.indices * 6_667, wide.indptr), shape=(250, 1_000_000))
    posterior = fit(wide, metric="cosine")
    np.testing.assert_array_equal(posterior.neighbors, fit(csr_array(X), metric="cosine").neighbors)
    assert posterior.diagnostics.figures["constant_features"] == []
    np.testing.assert_array_equal(posterior.transform(wide, wide), posterior.embedding)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "correlation"])
def test_given_neighbors_and_bridges(matrix: NDArray[np.float64], metric: Any) -> None:
    """Given neighbors and bridges of sparse data, which need single distances, are those of the dense data."""
    graph = kneighbors_graph(matrix, 6, metric="cityblock")
    sparse, dense = (fit(X, neighbors=graph, metric=metric) for X in (csr_array(matrix), matrix))
    np.testing.assert_allclose(sparse.embedding, dense.embedding, atol=1e-9)
    apart = np.zeros((100, 300))
    apart[:50, :150], apart[50:, 150:] = matrix[:50], matrix[50:100]
    apart[:, 0] += 0.01 * np.random.default_rng(5).random(100)  # distances of the parts differ
    sparse, dense = (fit(X, metric=metric, n_neighbors=4, disconnected="bridge") for X in (csr_array(apart), apart))
    assert sparse.diagnostics.figures["bridges"] == dense.diagnostics.figures["bridges"]
    assert sparse.diagnostics.figures["bridges"] or metric == "euclidean"
    if metric == "cosine":
        with pytest.raises(GlleError, match="2 components"):
            fit(csr_array(apart), metric="cosine", n_neighbors=4, disconnected="error")


@pytest.mark.parametrize("name", ["isomap", "laplacian-eigenmaps", "glle", "t-sne"])
def test_methods_on_neighbors_take_sparse_data(matrix: NDArray[np.float64], name: str) -> None:
    """The embedding equals the embedding of the dense data, up to rounding."""
    chosen = method(name)
    parameters = {"perplexity": 15, "early_iter": 0, "max_iter": 1} if name == "t-sne" else {}
    spec = chosen.spec(metric="cosine", **parameters)
    sparse, dense = chosen.embed(csr_array(matrix), spec), chosen.embed(matrix, spec)
    assert disparity(sparse.Y, dense.Y) < 1e-8
    np.testing.assert_allclose(sparse.Y.std(axis=0), dense.Y.std(axis=0), rtol=1e-5)
    if name == "t-sne":
        with pytest.raises(GlleError, match="2 principal components of 250 sparse points"):
            chosen.embed(csr_array(matrix[:, :2]))


@pytest.mark.parametrize("name", ["pca", "pacmap", "sne"])
def test_other_methods_refuse_sparse_data(matrix: NDArray[np.float64], name: str) -> None:
    """A method that needs dense data says so, with the remedy."""
    with pytest.raises(GlleError, match=r"data are sparse, which .*a dense array.*truncated SVD"):
        method(name).embed(csr_array(matrix))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"standardize": "zscore"}, r"which standardize=.zscore. does not support.*with_mean=False"),
        ({"metric": "hamming"}, "data are sparse, which metric='hamming' does not support.*column of 0 and 1"),
        ({"metric": "precomputed"}, "neighbors=graph"),
        ({"variant": "published"}, r"which variant='published' does not support.*truncated SVD"),
        ({"noise": "auto"}, r"which noise='auto' does not support.*a dense array"),
        ({"search": "approximate"}, r"which search='approximate' does not support.*a dense array"),
        ({"landmarks": 60}, r"which landmarks=60 does not support.*a dense array"),
    ],
)
def test_options_that_need_dense_data_are_refused(
    matrix: NDArray[np.float64], parameters: dict[str, Any], words: str
) -> None:
    """The error names the option and the remedy."""
    with pytest.raises(GlleError, match=words):
        fit(csr_array(matrix), **parameters)


def test_wrong_rows_are_named(matrix: NDArray[np.float64]) -> None:
    """Infinity, rows without a direction, equal rows and wrong types raise the errors of dense data."""
    column = int(np.flatnonzero(matrix[7])[2])
    infinite, zero, flat, tiny = matrix.copy(), matrix.copy(), matrix.copy(), matrix[:30] * 2.0**-700
    infinite[7, column], zero[7], flat[7], tiny[0, 0] = np.inf, 0, 1, 1
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (infinite, {}, rf"X\[7, {column}\] is inf"),
        (zero, {"metric": "cosine"}, r"Row 7 .* 1 such row\(s\) among 250, with 150 feature\(s\)\."),
        (flat, {"metric": "correlation"}, r"Row 7 .* 1 such row\(s\) among 250, with 150 feature\(s\)\."),
        (np.ones((30, 4)), {}, "All 30 points are equal"),
        (np.eye(30) * 1j, {}, "type complex128"),
        ((5, 0), {}, r"have shape \(5, 0\)"),
        (tiny, {}, "leave the range"),
    ]
    for data, options, words in cases:
        with pytest.raises(GlleError, match=words):
            fit(csr_array(data), **options)
    with pytest.raises(GlleError, match="All 30 points are equal"):
        method("lle").embed(csr_array((30, 4)))
    assert fit(csr_array(zero), disconnected="bridge").n_points == 250


@pytest.mark.parametrize(("kind", "index"), [(csr_array, -1), (csc_matrix, 150), (coo_array, -1)])
def test_broken_matrices_are_refused(matrix: NDArray[np.float64], kind: Any, index: int) -> None:
    """An index outside the matrix, with which scipy would write beyond its arrays, raises an error."""
    posterior, broken = fit(csr_array(matrix)), kind(matrix[:100].T if kind is csc_matrix else matrix[:100])
    (broken.col if kind is coo_array else broken.indices)[3] = index
    calls: list[Any] = [
        lambda: fit(broken),
        lambda: posterior.transform(csr_array(matrix), broken),
        lambda: fit(matrix).transform(matrix, broken),
    ]
    for call in calls:
        with pytest.raises(GlleError, match="sparse matrix is inconsistent"):
            call()


def test_other_training_data_are_refused(matrix: NDArray[np.float64]) -> None:
    """Data other than the training data, or in dense form, are not accepted with a sparse posterior."""
    rows = csr_array(matrix)
    posterior, dense = fit(rows), fit(matrix)
    np.testing.assert_array_equal(dense.transform(matrix, rows), dense.embedding)
    for data, new, words in (
        (rows * 2, rows, "not the data of the fit.*sparse if they were sparse"),
        (matrix, matrix, "not the data of the fit"),
        (rows, matrix[:, :20], "new points"),
        (rows, rows * 2.0**30, "times the extent of the training data away"),
    ):
        with pytest.raises(GlleError, match=words):
            posterior.transform(data, new)
    with pytest.raises(GlleError, match="would be nearly dense"):
        posterior.reconstruct(rows, posterior.mean)
