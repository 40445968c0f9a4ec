"""What users of other libraries reported, in public threads, must not happen here; each test names its thread."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.manifold import LocallyLinearEmbedding

from glle_engine import fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError, TooFewPointsError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.metrics.ranks import local_trustworthiness, trustworthiness
from tests.engine.conftest import bent_sheet


def two_halves() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return two sheets of 75 points, far apart."""
    return np.asarray(bent_sheet(150) + 50.0 * (np.arange(150) % 2)[:, None])


@pytest.mark.parametrize("noise", ["isotropic", "tangent"])
def test_transform_of_training_points_is_their_embedding(noise: str) -> None:
    """scikit-learn 29792: `fit(X).transform(X)` was not `fit_transform(X)`: two of 100 points came out close."""
    X = manifolds.make("s_curve", 100, seed=0).X
    posterior = fit(X, n_neighbors=12, noise=noise)  # type: ignore[arg-type] # a name of the parametrization
    np.testing.assert_array_equal(posterior.transform(X, X), posterior.embedding)
    drawn = posterior.draw(3).embedding
    np.testing.assert_array_equal(posterior.extend(X, X[::-1]).embed(drawn), drawn[::-1])


def test_a_duplicated_point_is_not_its_own_neighbour() -> None:
    """scikit-learn 16512: the first column of neighbors was cut off as "the point itself", which it was not.

    Of two equal points one kept itself as a neighbor, and was then rebuilt from itself.
    """
    X = np.repeat(np.random.default_rng(0).integers(-9, 10, (40, 2)).astype(float), 2, axis=0)
    for k in (1, 2, 3, 7):
        assert (kneighbors(X, k)[0] != np.arange(80)[:, None]).all()


def test_duplicates_are_neither_singular_nor_lost() -> None:
    """Smile 174 and umap 90: duplicated samples gave a singular matrix, or NA for points of the embedding."""
    X = np.repeat(bent_sheet(120), 3, axis=0)
    for n_neighbors in (4, 9):
        posterior = fit(X, n_neighbors=n_neighbors, disconnected="bridge")
        assert posterior.embedding.shape == (360, 2)
        assert np.isfinite(posterior.draw(0).embedding).all()


def test_no_point_outside_the_largest_component_is_dropped() -> None:
    """ManifoldLearning.jl 32, Smile 587 and 695: only the largest component was embedded.

    Of 2,000 points 1,000 came back. Here the graph is refused with the sizes, or bridged: every point has a place, or
    an error says why not.
    """
    X = two_halves()
    with pytest.raises(DisconnectedGraphError) as caught:
        fit(X, disconnected="error")
    assert caught.value.details["sizes"] == [75, 75]
    assert fit(X).embedding.shape == (150, 2)


def test_a_disconnected_graph_gives_no_nan() -> None:
    """Tapkee 28: after the warning that the graph is not connected every coordinate was nan, for any k that was tried.

    Here the error names a k that will do, and it does; or bridges give finite coordinates.
    """
    X = two_halves()
    with pytest.raises(DisconnectedGraphError) as caught:
        fit(X, n_neighbors=20, disconnected="error")
    k = caught.value.details["smallest_connecting_k"]
    for posterior in (fit(X, n_neighbors=k), fit(X, n_neighbors=20)):
        assert np.isfinite(posterior.embedding).all()
        assert np.isfinite(posterior.draw(0).embedding).all()


def test_one_more_point_far_away_does_not_spoil_the_rest() -> None:
    """Tapkee 53: nineteen rows with repetitions worked; with one more, far from all, the graph was not connected."""
    rows = np.random.default_rng(3).random((13, 6))
    X = np.concatenate([rows, rows[:6], [[9.0, 9.0, 9.0, 9.0, 9.0, 0.0]]])
    for k in range(4, 19):
        posterior = fit(X, n_neighbors=k, disconnected="bridge")
        assert posterior.embedding.shape == (20, 2)
        assert np.isfinite(posterior.embedding).all()


def test_lle_is_scikit_learns_at_the_same_parameters() -> None:
    """Megaman 71: LLE looked different from scikit-learn's "with the same parameters", which meant something else.

    Here n_neighbors and reg mean the same: the two embeddings span the same plane.
    """
    X = manifolds.make("swiss_roll", 300, seed=2).X
    reference = LocallyLinearEmbedding(n_neighbors=11, reg=1e-3, eigen_solver="dense").fit_transform(X)
    ours = fit(X, n_neighbors=11, reg=1e-3).embedding
    cosines = np.linalg.svd(np.linalg.qr(ours)[0].T @ np.linalg.qr(reference)[0], compute_uv=False)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-8)


def test_reg_reaches_the_weights() -> None:
    """scikit-learn 4756: the estimator did not hand its `reg` on, and all values gave one embedding."""
    X = bent_sheet(300)
    assert not np.allclose(fit(X, reg=1e-3).mean, fit(X, reg=1e-1).mean)


def test_k_of_n_is_refused_in_words_that_agree_with_the_check() -> None:
    """scikit-learn 29715: "Expected n_neighbors <= n_samples, but n_samples = 3, n_neighbors = 3"."""
    X = np.random.default_rng(0).standard_normal((30, 5))
    for k in (30, 31):
        with pytest.raises(TooFewPointsError, match="at most 29"):
            fit(X, n_neighbors=k)
    assert fit(X, n_neighbors=29).neighbors.shape == (30, 29)


def test_new_points_do_not_depend_on_their_company_nor_change_the_model() -> None:
    """Umap 566, 386 and 1224: a row's place changed with the other rows; umap 384: transform changed `embedding_`."""
    X = manifolds.make("s_curve", 400, seed=1).X
    posterior = fit(X)
    before = posterior.embedding.tobytes()
    new = X[:50] + 0.02
    together = posterior.transform(X, new)
    assert posterior.transform(X, new[7:8]).tobytes() == together[7:8].tobytes()
    assert posterior.transform(X, new[::-1]).tobytes() == together[::-1].tobytes()
    assert posterior.embedding.tobytes() == before


def test_an_embedding_has_a_score_and_each_point_its_own() -> None:
    """Umap 467: no number showed how good an embedding is, nor which of two runs, that differ a little, is the better.

    Here two fits are the same bits, draws have scores, and points that were put in the wrong place score low.
    """
    X = bent_sheet(300)
    embedding = fit(X).embedding
    assert embedding.tobytes() == fit(X).embedding.tobytes()
    spoilt = np.array(embedding)
    spoilt[:5] = embedding[np.argsort(embedding[:, 0])[-5:]] + 0.01
    assert trustworthiness(X, spoilt) < trustworthiness(X, embedding)
    scores = local_trustworthiness(X, spoilt, 10, np.arange(300))
    assert scores[:5].max() < np.median(scores)
