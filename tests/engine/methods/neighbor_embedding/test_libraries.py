"""What UMAP, t-SNE and PaCMAP share and offer as their libraries do: metrics, options, labels, maps and inverses."""

import json
from typing import Any, get_args

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import pairwise_distances

from glle_engine import estimator
from glle_engine.audit.audit import audit
from glle_engine.base.errors import InvalidParameterError, OutOfRangeError
from glle_engine.base.progress import silent
from glle_engine.base.spec import FurtherMetric, Metric
from glle_engine.methods import method
from glle_engine.methods.neighbor_embedding import libraries
from tests.engine.methods.reference import embed, embed_or_skip

N = 150
GROUPS = np.arange(N) % 3
# Counts with zeros, so that all metrics but haversine have a meaning, and sums are exact.
COUNTS = np.random.default_rng(0).poisson(1 + 2 * np.eye(3)[GROUPS] @ np.ones((3, 6)).cumsum(axis=0)).astype(float)
SHORT = {"early_iter": 0, "max_iter": 5, "init": "spectral", "perplexity": 10}
BINARY = {"jaccard", "dice", "russellrao", "rogerstanimoto", "sokalsneath", "yule"}
FURTHER = sorted(set(get_args(FurtherMetric)) - set(get_args(Metric)))
DEEP = json.loads("[" * 32 + "]" * 32)
pytestmark = pytest.mark.timeout(600)  # the libraries are compiled at their first import


@pytest.mark.parametrize("metric", FURTHER)
def test_a_further_metric_is_its_matrix_of_distances(metric: str) -> None:
    """Neighbors by each of scikit-learn's metrics are those of the matrix of all distances, also of new points."""
    X = np.random.default_rng(1).uniform(-1, 1, (N, 2)) if metric == "haversine" else COUNTS
    spec = method("t-sne").spec(metric=metric, **SHORT)
    D = pairwise_distances(X != 0 if metric in BINARY else X, metric=metric)
    _, distances = libraries.nearest_points(X, 9, spec, silent)
    others = np.sort(D[~np.eye(N, dtype=bool)].reshape(N, N - 1), axis=1)
    np.testing.assert_allclose(distances, others[:, :9], atol=1e-9)
    nearest, distances = libraries.nearest_to(X, X[:20], 9, spec)
    D = pairwise_distances(
        X[:20] != 0 if metric in BINARY else X[:20], X != 0 if metric in BINARY else X, metric=metric
    )
    np.testing.assert_allclose(distances, np.sort(D, axis=1)[:, :9], atol=1e-9)
    np.testing.assert_allclose(distances, D[np.arange(20)[:, None], nearest], atol=1e-9)
    found = embed_or_skip("t-sne", X, metric=metric, **SHORT)
    assert np.isfinite(found.transform(X[:5] * 1.01)).all()


def test_what_a_further_metric_refuses() -> None:
    """Sparse data, haversine of other than two columns, and an audit raise an error."""
    for X, metric, words in (
        (csr_array(COUNTS), "manhattan", "data are sparse"),
        (COUNTS, "haversine", "takes latitude and longitude, not 6 features"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            embed_or_skip("t-sne", X, metric=metric)
    with pytest.raises(InvalidParameterError, match="metric='manhattan'") as caught:
        audit(COUNTS, method="t-sne", parameters={"metric": "manhattan"})
    assert "metric='precomputed'" in caught.value.remedy


def test_options_reach_the_library_and_the_record() -> None:
    """Options change the embedding and are stored with the parameters; without options nothing is stored."""
    spec = method("t-sne").spec
    assert "options" not in spec().to_dict()
    given = spec(**SHORT, options={"max_step_norm": 1e-6})
    assert spec.from_dict(given.to_dict()) == given
    assert given.to_dict()["options"] == {"max_step_norm": 1e-6}
    free, short = embed_or_skip("t-sne", COUNTS, **SHORT).Y, method("t-sne").embed(COUNTS, given).Y
    assert np.ptp(short) < 0.5 * np.ptp(free)


@pytest.mark.parametrize(
    ("options", "words", "remedy"),
    [
        ({"momentum": 1}, "Unknown options of openTSNE: momentum", "Did you mean final_momentum?"),
        ({"n_iter": 9}, "n_iter of openTSNE cannot be given in options", "Give the parameter max_iter instead."),
        ({"n_jobs": 2}, "n_jobs of openTSNE cannot be given in options", "Leave it out."),
        ({"metric_params": {}}, "metric_params of openTSNE cannot be given", "Leave it out."),
        ({"final_momentum": "fast"}, "openTSNE fails with these options: ", "Change these options, or leave them out."),
        ([1], "is not a mapping of names to JSON values", "Give another value."),
        ({"max_grad_norm": np.ones(2)}, "is not a mapping of names to JSON values", "Give another value."),
        ({"max_grad_norm": "\ud800"}, "is not a mapping of names to JSON values", "Give another value."),
        ({"max_grad_norm": DEEP}, "is not a mapping of names to JSON values", "Give another value."),
    ],
)
def test_options_that_cannot_be(options: Any, words: str, remedy: str) -> None:
    """Unknown options, arguments that the method sets, and values that the library rejects raise an error."""
    with pytest.raises(InvalidParameterError, match=words) as caught:
        embed_or_skip("t-sne", COUNTS, options=options, **SHORT)
    assert remedy in str(caught.value.remedy)


def test_a_cancelled_descent_with_options_is_cancelled() -> None:
    """An error of the caller's progress callback is raised as it is, and not taken for a fault of the options."""

    def cancel(done: int, _: int, stage: str) -> None:
        if done and stage == "descent":
            raise TimeoutError("cancelled")

    spec = method("t-sne").spec(**{**SHORT, "max_iter": 60}, options={"max_step_norm": 4.0})
    with pytest.raises(TimeoutError, match="cancelled"):
        method("t-sne").embed(COUNTS, spec, cancel)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "named"), [("umap", "n_epochs"), ("densmap", "dens_lambda"), ("pacmap", "MN_ratio")])
def test_options_of_libraries_that_compile(name: str, named: str) -> None:
    """Options reach the library; unknown ones, and arguments that have a parameter, raise an error."""
    short: dict[str, Any] = {"max_iter": 5}
    options: dict[str, Any] = {"pacmap": {"distance": "manhattan"}}.get(name, {"local_connectivity": 2.0})
    found = embed_or_skip(name, COUNTS, options=options, **short)
    assert np.abs(found.Y - embed(name, COUNTS, **short).Y).max() > 0
    with pytest.raises(InvalidParameterError, match="Unknown options of") as caught:
        embed(name, COUNTS, options={next(iter(options))[:-2]: 1})
    assert f"Did you mean {next(iter(options))}?" in caught.value.remedy
    with pytest.raises(InvalidParameterError, match=f"{named} of .* cannot be given in options"):
        embed(name, COUNTS, options={named: 1})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["umap", "densmap"])
def test_umap_of_points_of_sparse_points_and_of_distances(name: str) -> None:
    """Points, the same points in sparse form, and their distances give the same embedding."""
    X = COUNTS * np.random.default_rng(5).uniform(0.5, 2, COUNTS.shape)  # no equal distances
    short: dict[str, Any] = {"max_iter": 20, "init": "random"}
    dense = embed_or_skip(name, X, **short).Y
    np.testing.assert_array_equal(embed(name, csr_array(X), **short).Y, dense)
    np.testing.assert_array_equal(embed(name, cdist(X, X), metric="precomputed", **short).Y, dense)
    of_distances = embed(name, cdist(X, X, "cityblock"), metric="precomputed", **short).Y
    np.testing.assert_array_equal(embed(name, X, metric="manhattan", **short).Y, of_distances)


@pytest.mark.slow
def test_umap_with_labels() -> None:
    """With target_weight, labels separate groups that the data do not; -1 means no label."""
    X, y = np.random.default_rng(2).standard_normal((N, 4)), GROUPS

    def between(Y: Any) -> float:
        centers = np.array([Y[y == group].mean(axis=0) for group in range(3)])
        return float(centers.var(axis=0).sum() / Y.var(axis=0).sum())

    supervised = embed_or_skip("umap", X, y, target_weight=0.9).Y
    assert between(embed("umap", X).Y) < 0.1
    assert between(supervised) > 0.5
    unknown = embed("umap", X, np.full(N, -1), target_weight=0.9).Y
    assert between(unknown) < 0.1
    model = estimator.Embedding("umap", target_weight=0.9).fit(X, y)
    np.testing.assert_array_equal(model.embedding_, supervised)
    np.testing.assert_array_equal(estimator.Embedding("umap").fit(X, y).embedding_, embed("umap", X).Y)
    for labels, options, words in (
        (None, {"target_weight": 0.5}, "needs the class of each point, but"),
        (y, {}, "does not use labels"),
    ):
        with pytest.raises(InvalidParameterError, match=words):
            embed("umap", X, labels, **options)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-9, 1e-6])
def test_a_moved_training_point_stays_near_its_place(size: float) -> None:
    """A training point that is moved a little lands near its row of the embedding."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.standard_normal((N, 5)), rng.standard_normal((N, 5)) + 4])
    found = embed_or_skip("umap", X)
    moved = found.transform(X + size * rng.standard_normal(X.shape))
    assert np.linalg.norm(moved - found.Y, axis=1).max() < 1e-6 * np.ptp(found.Y)
    beside = found.transform(X + 0.01 * rng.standard_normal(X.shape))
    assert np.quantile(np.linalg.norm(beside - found.Y, axis=1), 0.9) < 0.05 * np.ptp(found.Y)


@pytest.mark.slow
@pytest.mark.parametrize("standardize", ["none", "zscore"])
def test_umap_takes_places_back_to_the_data(standardize: str) -> None:
    """Positions are mapped back near the data; positions outside the embedding and other metrics raise an error."""
    X = np.random.default_rng(4).uniform(0, 1, (300, 2)) @ np.array([[100.0, 3, 50], [20, -4, 0]]) + [9, 1, -40]
    found = embed_or_skip("umap", X, standardize=standardize)
    inside = found.Y[:40] * 0.9 + found.Y.mean(axis=0) * 0.1
    again = found.transform(found.inverse_transform(inside))
    assert np.median(np.linalg.norm(again - inside, axis=1)) < 0.1 * np.ptp(found.Y)
    errors = np.linalg.norm((found.inverse_transform(found.Y[:40]) - X[:40]) / X.std(axis=0), axis=1)
    assert np.median(errors) < 0.5
    with pytest.raises(OutOfRangeError, match="1 of 2 positions, the first in row 1 \\(counted from 0\\), are outside"):
        found.inverse_transform([found.Y.mean(axis=0), found.Y.max(axis=0) * 100])
    with pytest.raises(InvalidParameterError, match="metric='cosine'"):
        embed("umap", X, metric="cosine", max_iter=5).inverse_transform(found.Y[:2])
    with pytest.raises(InvalidParameterError, match="UMAP has no inverse with n_components=1"):
        embed("umap", X, n_components=1, max_iter=5).inverse_transform([[0.0]])


@pytest.mark.slow
def test_whole_numbers_of_any_type_are_classes() -> None:
    """Labels as integers and as whole floating-point numbers give the same embedding."""
    pytest.importorskip("umap")
    y = np.arange(len(COUNTS)) % 3 - 1
    whole, floating = (
        estimator.Embedding("umap", target_weight=0.9, max_iter=5).fit_transform(COUNTS, y.astype(t)) for t in "if"
    )
    np.testing.assert_array_equal(whole, floating)
