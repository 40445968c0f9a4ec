"""The scikit-learn estimator."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from glle_engine import GlleError
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.estimator import GLLE, Embedding
from glle_engine.methods.parameters import GraphSpec, RadiusSpec, RaisingSpec
from glle_engine.methods.registry import METHODS, method
from glle_engine.reliability.calibration import calibrate

_SETTINGS: tuple[dict[str, Any], ...] = (
    {"method": "direct"},
    {"method": "direct", "mean": "derived"},
    {"variant": "published"},
    {"variant": "published", "method": "direct"},
    {"variant": "published", "covariance": "full", "max_iter": 5},
    {"variant": "published", "covariance": "full-corrected", "max_iter": 5, "tol": 0},
    {"noise": "tangent"},
    {"noise": "auto"},
    {"neighborhoods": "adaptive"},
    {"landmarks": 8, "n_neighbors": 3},
    {"search": "approximate"},
    {"standardize": "zscore"},
    {"standardize": "robust"},
    {"metric": "cosine", "standardize": "zscore"},
    {"metric": "correlation", "standardize": "robust"},
    {"n_neighbors": 3, "n_components": 3},
    {"metric": "precomputed"},
    {"variance": "dirichlet"},
    {"variance": "ml", "reg": 0.1},
    {"n_neighbors": 5, "n_components": 1, "random_state": None},
)


@pytest.mark.filterwarnings("ignore:The neighbor graph falls into:UserWarning")  # of blobs
@pytest.mark.parametrize(
    "estimator",
    [
        *(GLLE(), Embedding("isomap"), Embedding("isomap", radius=1e6)),
        *(Embedding("kernel-pca"), Embedding("supervised-lle")),
        *(
            pytest.param(each, marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")])
            for each in [*map(Embedding, METHODS), *(GLLE(**setting) for setting in _SETTINGS)]
        ),
    ],
    ids=repr,
)
def test_check_estimator(estimator: GLLE | Embedding) -> None:
    """scikit-learn's checks: of a posterior, of maps by neighbors, by a radius and by a kernel, and with classes.

    The slow ones are of every method, and of the settings of a posterior.
    """
    from sklearn.utils.estimator_checks import check_estimator  # noqa: PLC0415 # it takes half a second to load

    check_estimator(estimator, on_skip=None)


def test_embedding_draws_and_new_points(sheet: NDArray[np.float64]) -> None:
    """Transform gives training points their embedding, sample the posterior's draws."""
    model = GLLE(n_neighbors=8)
    Y = model.fit_transform(sheet)
    np.testing.assert_array_equal(model.transform(sheet), Y)
    drawn = model.sample(3, seed=2)
    np.testing.assert_array_equal(drawn[1], model.posterior_.draw(1, seed=2).embedding)
    np.testing.assert_array_equal(model.sample(2, X=sheet[:9], seed=2), drawn[:2, :9])
    assert model.sample(0).shape == (0, 400, 2)
    assert model.sample(0, X=sheet[:9]).shape == (0, 9, 2)


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # doubts about so rough a calibration
def test_samples_at_the_calibrated_scale(sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """scale="auto" is the number that half-sampling suggests, to the last bit; computed once, and again after a fit."""
    made: list[object] = []

    def calibrate_and_record(*arguments: Any) -> Any:
        made.append(arguments)
        return calibrate(*arguments, n_resamples=4, n_draws=6)

    monkeypatch.setattr("glle_engine.estimator.calibrate", calibrate_and_record)
    model = GLLE().fit(sheet)
    drawn = model.sample(2, seed=5, scale="auto")
    expected = calibrate(model.posterior_, sheet, n_resamples=4, n_draws=6).scale
    assert model.calibration_.scale == expected
    assert drawn.tobytes() == model.sample(2, seed=5, scale=expected).tobytes()
    model.sample(1, X=sheet[:3], scale="auto")
    assert len(made) == 1
    with pytest.raises(GlleError, match="because it is calibrated for the posterior"):
        model.sample(1, scale="auto", source="prior")
    assert model.fit(sheet[:200]).calibration_ is model.calibration_
    assert len(made) == 2


def test_a_doubtful_scale_warns(sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """The notes of the calibration are warnings at scale="auto"."""
    monkeypatch.setattr("glle_engine.reliability.calibration.MIN_RANK_CORRELATION", 1.5)
    model = GLLE().fit(sheet[:200])
    with pytest.warns(UserWarning, match="disagree about which points are uncertain"):
        model.sample(2, scale="auto")


@pytest.mark.parametrize("options", [{}, {"metric": "precomputed"}])
def test_float32_in_float32_out(sheet: NDArray[np.float64], options: dict[str, Any]) -> None:
    """The dtype of the data is that of the embedding; distances are pairwise for scikit-learn."""
    X = (cdist(sheet, sheet) if options else sheet).astype(np.float32)
    X = np.maximum(X, X.T) if options else X
    model = GLLE(**options).fit(X)
    assert model.embedding_.dtype == model.transform(X[:5]).dtype == np.float32
    np.testing.assert_array_equal(model.transform(X[:5]), model.embedding_[:5])
    assert model.__sklearn_tags__().input_tags.pairwise == bool(options)


def test_pandas_output_of_a_pipeline(sheet: NDArray[np.float64]) -> None:
    """A data frame with the index of the data and the names of the coordinates; it survives clone."""
    frame = pd.DataFrame(sheet, columns=["x", "y", "z"], index=np.arange(400) + 7)
    model = clone(make_pipeline(StandardScaler(), GLLE(n_components=3, reg=0.1))).set_output(transform="pandas")
    out = model.fit_transform(frame)
    assert list(out.columns) == list(model.get_feature_names_out()) == ["glle0", "glle1", "glle2"]
    assert (out.index == frame.index).all()
    assert model[-1].get_params()["reg"] == 0.1


def test_small_data_and_components_need_no_parameters() -> None:
    """Half of few points are neighbors; two blobs are bridged with a warning, or an error of the engine."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    assert GLLE().fit(X[:12]).posterior_.spec.n_neighbors == 6
    few, auto = (Embedding("isomap", **neighbors).fit_transform(X[:9]) for neighbors in ({}, {"n_neighbors": "auto"}))
    np.testing.assert_array_equal(few, auto)
    assert Embedding("auto-k-lle").fit(X[:20]).embedding_.shape == (20, 2)
    X[20:] += 50
    with pytest.warns(UserWarning, match="1 edge that joins no nearest neighbors was added"):
        GLLE().fit(X)
    for options, words in (
        ({"disconnected": "error"}, "2 components"),
        ({"n_neighbors": 50}, "at most 39"),
        ({"random_state": -1}, "random_state=-1"),
    ):
        with pytest.raises(GlleError, match=words):
            GLLE(**options).fit(X)


def test_random_state_is_the_stream_of_draws(sheet: NDArray[np.float64]) -> None:
    """An integer is the seed; a source of random numbers gives one at each fit."""
    seed: Any = np.int64(7)
    model = GLLE(random_state=seed).fit(sheet)
    np.testing.assert_array_equal(model.sample(1), model.sample(1, seed=7))
    sources = [GLLE(random_state=np.random.RandomState(3)).fit(sheet).seed_ for _ in range(2)]
    assert sources[0] == sources[1]
    generator = np.random.RandomState(3)
    assert GLLE(random_state=generator).fit(sheet).seed_ != GLLE(random_state=generator).fit(sheet).seed_


@pytest.mark.filterwarnings("ignore:The neighbor graph falls into:UserWarning")  # of three neighbors
@pytest.mark.parametrize(
    "estimator",
    [
        *(GLLE(**setting) for setting in _SETTINGS if setting.get("search") != "approximate"),
        Embedding("glle", method="direct"),
        Embedding("glle", variant="published"),
        Embedding("lle", metric="precomputed"),
        Embedding("laplacian-eigenmaps", standardize="zscore"),
        Embedding("mds", dissimilarity="precomputed"),
        Embedding("kernel-pca", kernel="precomputed"),
    ],
    ids=repr,
)
def test_tags_tell_which_data_are_taken(estimator: GLLE | Embedding, sheet: NDArray[np.float64]) -> None:
    """Sparse data are fitted or refused as the tag says; distances are pairwise."""
    tags = estimator.__sklearn_tags__().input_tags
    sparse = csr_array(np.abs(np.round(sheet[:40], 1)))
    if tags.sparse:
        estimator.fit(sparse)
    else:
        with pytest.raises(
            (GlleError, TypeError), match=r"data are sparse|[Ss]parse data"
        ):  # the latter of scikit-learn
            estimator.fit(sparse)
    assert tags.pairwise == ("precomputed" in estimator.get_params().values())


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_of_a_method_is_given_and_set(name: str) -> None:
    """A clone has all of them, and `set_params` changes them."""
    defaults = METHODS[name].spec().to_dict()
    model = clone(Embedding(name, **defaults))
    assert model.get_params() == {"name": name, **defaults}
    assert Embedding().set_params(name=name, **defaults).get_params() == model.get_params()


def test_any_method_is_an_estimator(sheet: NDArray[np.float64]) -> None:
    """Its parameters are those of the method; new points are placed, or the methods that can are named."""
    model = clone(Embedding("isomap", n_neighbors=8)).set_params(n_components=1)
    assert model.get_params() == {"name": "isomap", "n_neighbors": 8, "n_components": 1}
    np.testing.assert_array_equal(model.fit_transform(sheet), model.result_.Y)
    np.testing.assert_array_equal(model.transform(sheet), model.embedding_)
    with pytest.raises(GlleError, match="Did you mean n_neighbors"):
        Embedding("isomap", n_neighbours=8).fit(sheet)
    with pytest.raises(GlleError, match=r"Give the name of the method first: glle.Embedding\('umap'\)"):
        Embedding(method="umap").fit(sheet)
    with pytest.raises(AttributeError) as caught:
        Embedding("mds").fit(sheet).transform(sheet)
    assert "pca, ppca, factor-analysis, kernel-pca, npe, lle, isomap, t-sne, umap or pacmap" in str(
        caught.value.__cause__
    )


def test_given_weights_are_pairs(sheet: NDArray[np.float64]) -> None:
    """Dense and sparse weights are fitted, negative ones refused; a kernel may have negative values."""
    K = np.exp(-cdist(sheet[:8], sheet[:8]))
    model = Embedding("laplacian-eigenmaps", weights="precomputed")
    tags = model.__sklearn_tags__().input_tags
    assert tags.pairwise
    assert tags.positive_only
    assert tags.sparse
    np.testing.assert_allclose(model.fit_transform(csr_array(K)), model.fit_transform(K), atol=1e-10)
    with pytest.raises(ValueError, match="Negative values"):
        model.fit(-K)
    tags = Embedding("kernel-pca", kernel="precomputed").__sklearn_tags__().input_tags
    assert tags.pairwise
    assert not tags.positive_only
    assert Embedding("kernel-pca", kernel="precomputed").fit_transform(K - 0.5).shape == (8, 2)


def test_places_are_taken_back_to_the_data(sheet: NDArray[np.float64]) -> None:
    """In the type of the places; methods without an inverse have no such method."""
    model = Embedding("pca", n_components=3).fit(sheet.astype(np.float32))
    back = model.inverse_transform(model.transform(sheet.astype(np.float32)))
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, sheet, atol=1e-4)
    assert make_pipeline(StandardScaler(), Embedding("kernel-pca")).fit(sheet).inverse_transform(np.zeros((2, 2))).shape
    with pytest.raises(NotFittedError):
        Embedding("pca").inverse_transform(sheet)
    for name in ("mds", "isomap"):
        with pytest.raises(AttributeError) as caught:
            Embedding(name).fit(sheet).inverse_transform(sheet)
        assert "has no inverse" in str(caught.value.__cause__)


def test_notes_that_scikit_learn_warns_of_are_warnings(sheet: NDArray[np.float64]) -> None:
    """Bridges and an iteration that has not ended."""
    with pytest.warns(ConvergenceWarning, match="After 1 steps the likelihood still grows"):
        Embedding("factor-analysis", n_components=1, max_iter=1).fit(sheet)
    X = np.concatenate([sheet[:40], sheet[:40] + 100])
    with pytest.warns(UserWarning, match="falls into 2 parts"):
        Embedding("isomap", n_neighbors=10).fit(X)


_BRIDGING = [name for name, each in METHODS.items() if issubclass(each.spec, GraphSpec)]


@pytest.mark.filterwarnings("ignore:The map may not be final")  # of MVU, as rounding has it
@pytest.mark.parametrize("name", [*_BRIDGING, "glle"])
def test_a_graph_in_parts_is_treated_alike(name: str, sheet: NDArray[np.float64]) -> None:
    """Function and estimator join the parts with the same note and figure, or refuse if the user says so."""
    X = np.concatenate([sheet[:40], sheet[:40] + 100])
    chosen = method(name)
    labels = np.zeros(80, int) if chosen.labels else None
    counts: Any = {"k_most": 10} if name == "auto-k-lle" else {"n_neighbors": 10}
    with pytest.warns(UserWarning, match="1 edge that joins no nearest neighbors was added|falls into 2 parts"):
        model = Embedding(name, **counts).fit(X, labels)
    found = chosen.embed(X, chosen.spec(**counts), labels=labels)
    np.testing.assert_array_equal(model.embedding_, found.Y)
    assert [note.code for note in found.notes].count("bridged") == 1
    ((start, end),) = found.figures["bridges"]
    assert (start < 40) != (end < 40)
    with pytest.raises(DisconnectedGraphError, match="2 components"):
        Embedding(name, disconnected="error", **counts).fit(X, labels)
    if issubclass(chosen.spec, RadiusSpec):
        with pytest.raises(DisconnectedGraphError, match="smallest radius that connects"):
            Embedding(name, radius=20.0, disconnected="error").fit(X)
    if name == "laplacian-eigenmaps":
        with pytest.raises(GlleError, match="The graph of the weights falls into 2 components"):
            Embedding(name, weights="precomputed").fit(np.exp(-cdist(X, X)))


_RAISING = [name for name, each in METHODS.items() if issubclass(each.spec, RaisingSpec)]


@pytest.mark.parametrize("name", _RAISING)
def test_a_method_that_cannot_bridge_takes_more_neighbors(name: str, sheet: NDArray[np.float64]) -> None:
    """Function and estimator raise their number with the same note and figure, or refuse if the user says so."""
    X = np.concatenate([sheet[:40], sheet[:40] + 100])
    chosen = method(name)
    with pytest.warns(UserWarning, match="With n_neighbors=10 .* n_neighbors=40 was used"):
        model = Embedding(name).fit(X)
    found = chosen.embed(X)
    np.testing.assert_array_equal(model.embedding_, found.Y)
    np.testing.assert_array_equal(chosen.embed(X, chosen.spec(n_neighbors=40)).Y, found.Y)
    assert found.notes[0].code == "neighbors-raised"
    assert model.result_.notes == found.notes
    assert found.figures["n_neighbors"] == model.result_.figures["n_neighbors"] == 40
    with pytest.raises(DisconnectedGraphError, match="2 components") as refused:
        chosen.embed(X, chosen.spec(disconnected="error"))
    assert "smallest n_neighbors that connects it is 40" in refused.value.remedy
    with pytest.raises(DisconnectedGraphError) as again:
        Embedding(name, disconnected="error").fit(X)
    assert str(again.value) == str(refused.value)


def test_too_many_neighbors_are_refused(sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the number that would connect the graph."""
    monkeypatch.setattr("glle_engine.methods.parameters._MAX_NEIGHBORHOOD_PAIRS", 80 * 40**2 - 1)
    with pytest.raises(DisconnectedGraphError, match="2 components") as refused:
        Embedding("ltsa").fit(np.concatenate([sheet[:40], sheet[:40] + 100]))
    assert refused.value.details["smallest_connecting_k"] == 40


def test_more_neighbors_are_no_remedy_for_a_bandwidth(sheet: NDArray[np.float64]) -> None:
    """Parts that a kernel separates are embedded without a warning; a bandwidth that is too small is refused."""
    X = np.concatenate([sheet[:40], sheet[:40] + 100])
    assert np.isfinite(Embedding("diffusion-maps").fit(X).embedding_).all()
    with pytest.raises(GlleError, match="smallest epsilon that connects them"):
        Embedding("diffusion-maps", epsilon=1e-9).fit(X)
