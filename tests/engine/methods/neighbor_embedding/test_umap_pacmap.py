"""UMAP, densMAP and PaCMAP by their libraries; without them these tests are skipped."""

import warnings

import numpy as np
import pytest

from glle_engine import estimator, manifolds
from glle_engine.methods import method
from glle_engine.metrics.ranks import trustworthiness
from tests.engine.methods.reference import LIBRARIES, embed_or_skip, import_or_skip, with_slow_ones

N = 200
SHEET = manifolds.make("s_curve", N, seed=5)
pytestmark = pytest.mark.timeout(600)  # the libraries are compiled at their first import


@pytest.mark.slow
def test_umap_is_umap_learns() -> None:
    """The embedding keeps as many neighbors as umap-learn's own, and has its curve parameters a and b."""
    start = np.random.default_rng(0).standard_normal((N, 2)).astype(np.float32)
    embedding = embed_or_skip("umap", SHEET.X, init="random", max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = import_or_skip("umap").UMAP(init=start, n_epochs=50, random_state=0, n_jobs=1)
        expected = model.fit_transform(SHEET.X)
    assert (embedding.figures["a"], embedding.figures["b"]) == pytest.approx((model._a, model._b))
    ours, theirs = (trustworthiness(SHEET.X, Y, 10) for Y in (embedding.Y, expected))
    assert ours == pytest.approx(theirs, abs=0.02)
    assert ours > 0.95


@pytest.mark.slow
def test_density_is_kept_by_densmap() -> None:
    """Of two clusters, densMAP keeps the one that is ten times wider wider than UMAP does."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.standard_normal((100, 5)), 40 + 10 * rng.standard_normal((100, 5))])
    ratios = {}
    for name in ("umap", "densmap"):
        Y = embed_or_skip(name, X).Y
        ratios[name] = Y[100:].std(axis=0).mean() / Y[:100].std(axis=0).mean()
    assert ratios["densmap"] > 1.5 * ratios["umap"]


@pytest.mark.slow
def test_pacmap_is_pacmaps() -> None:
    """With the defaults, the embedding keeps as many neighbors as the library's own."""
    library = import_or_skip("pacmap")
    embedding = embed_or_skip("pacmap", SHEET.X)
    expected = library.PaCMAP(random_state=0).fit_transform(SHEET.X)
    ours, theirs = (trustworthiness(SHEET.coordinates, Y, 10) for Y in (embedding.Y, expected))
    assert ours == pytest.approx(theirs, abs=0.02)
    assert embedding.figures == {"iterations": 450}


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 13, 30, 35])
def test_few_points_get_fewer_pairs(n: int) -> None:
    """The estimator lowers the number of neighbors for few points, down to 8 points."""
    import_or_skip("pacmap")
    model = estimator.Embedding("pacmap", max_iter=5).fit(SHEET.X[:n])
    assert np.isfinite(model.embedding_).all()
    assert model.embedding_.shape == (n, 2)


@pytest.mark.parametrize("name", with_slow_ones(LIBRARIES))
def test_a_seed_is_reproducible(name: str) -> None:
    """Equal seeds give equal bits in any unit that is a power of two; other seeds and options change the embedding."""
    short = {"max_iter": 20 if name == "pacmap" else 30}
    first = embed_or_skip(name, SHEET.X, seed=2**40, **short).Y
    np.testing.assert_array_equal(embed_or_skip(name, SHEET.X, seed=2**40, **short).Y, first)
    np.testing.assert_array_equal(embed_or_skip(name, SHEET.X * 2.0**300, seed=2**40, **short).Y, first)
    assert np.abs(embed_or_skip(name, SHEET.X, seed=1, **short).Y - first).max() > 0
    assert np.abs(embed_or_skip(name, SHEET.X, seed=2**40, n_neighbors=5, **short).Y - first).max() > 0


@pytest.mark.parametrize("name", with_slow_ones(LIBRARIES))
@pytest.mark.parametrize(("init", "p"), [("pca", 1), ("random", 3), ("spectral", 1), ("spectral", 3)])
def test_starts_and_dimensions(name: str, init: str, p: int) -> None:
    """Every start works in one and in three dimensions."""
    if name == "pacmap" and init == "spectral":
        pytest.skip("PaCMAP has no spectral start")
    short = {"max_iter": 5 if name == "pacmap" else 10}
    embedding = embed_or_skip(name, SHEET.X, init=init, n_components=p, **short)
    assert embedding.Y.shape == (N, p)
    assert np.isfinite(embedding.Y).all()


@pytest.mark.parametrize("name", with_slow_ones(LIBRARIES))
def test_a_graph_in_pieces_is_embedded(name: str) -> None:
    """Two distant sheets with some equal points become two groups of points."""
    X = np.concatenate([SHEET.X, SHEET.X + 100, SHEET.X[:20]])
    Y = embed_or_skip(name, X).Y
    assert np.isfinite(Y).all()
    groups = [Y[:N], Y[N : 2 * N]]
    apart = np.linalg.norm(groups[0].mean(axis=0) - groups[1].mean(axis=0))
    assert apart > max(group.std() for group in groups)


def test_epochs_follow_from_the_number_of_points() -> None:
    """The number of epochs is `max_iter`, or umap-learn's default for this number of points."""
    assert method("umap").spec(max_iter=7).epochs(10**6) == 7
    epochs = [method(name).spec().epochs(n) for name in ("umap", "densmap") for n in (10_000, 10_001)]
    assert epochs == [500, 200, 700, 400]
