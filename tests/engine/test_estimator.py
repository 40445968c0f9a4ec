"""The scikit-learn estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from glle_engine import GlleError
from glle_engine.estimator import GLLE
from glle_engine.reliability.calibration import calibrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


@pytest.mark.filterwarnings("ignore:The neighbor graph falls into:UserWarning")  # its data are blobs
@parametrize_with_checks([GLLE()])  # type: ignore[untyped-decorator]
def test_check_estimator(estimator: GLLE, check: Callable[[GLLE], None]) -> None:
    """scikit-learn's checks of estimators."""
    check(estimator)


def test_embedding_draws_and_new_points(sheet: NDArray[np.float64]) -> None:
    """Transform gives training points their embedding, sample the posterior's draws."""
    model = GLLE(n_neighbors=8)
    Y = model.fit_transform(sheet)
    np.testing.assert_array_equal(model.transform(sheet), Y)
    drawn = model.sample(3, seed=2)
    np.testing.assert_array_equal(drawn[1], model.posterior_.draw(1, seed=2).embedding)
    np.testing.assert_array_equal(model.sample(2, X=sheet[:9], seed=2), drawn[:2, :9])
    assert model.sample(0).shape == (0, 400, 2)


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # doubts about so rough a calibration
def test_samples_at_the_calibrated_scale(sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """scale="auto" is the number that half-sampling suggests, to the last bit; computed once, and again after a fit."""
    made: list[object] = []

    def noted(*arguments: Any) -> Any:
        made.append(arguments)
        return calibrate(*arguments, n_half_samples=4, n_draws=6)

    monkeypatch.setattr("glle_engine.estimator.calibrate", noted)
    model = GLLE().fit(sheet)
    drawn = model.sample(2, seed=5, scale="auto")
    expected = calibrate(model.posterior_, sheet, n_half_samples=4, n_draws=6).scale
    assert model.calibration_.scale == expected
    assert drawn.tobytes() == model.sample(2, seed=5, scale=expected).tobytes()
    model.sample(1, X=sheet[:3], scale="auto")
    assert len(made) == 1
    with pytest.raises(GlleError, match="not for the prior"):
        model.sample(1, scale="auto", source="prior")
    assert model.fit(sheet[:200]).calibration_ is model.calibration_
    assert len(made) == 2


def test_a_doubtful_scale_warns(sheet: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """The notes of the calibration are warnings at scale="auto"."""
    monkeypatch.setattr("glle_engine.reliability.calibration.CORRELATED", 1.5)
    model = GLLE().fit(sheet[:200])
    with pytest.warns(UserWarning, match="disagree which points are uncertain"):
        model.sample(2, scale="auto")


def test_float32_in_float32_out(sheet: NDArray[np.float64]) -> None:
    """The dtype of the data is that of the embedding."""
    model = GLLE().fit(sheet.astype(np.float32))
    assert model.embedding_.dtype == model.transform(sheet[:5].astype(np.float32)).dtype == np.float32
    assert GLLE().fit_transform(sheet).dtype == np.float64


def test_pipeline_clone_and_names(sheet: NDArray[np.float64]) -> None:
    """It works in a pipeline, survives clone, and names its output."""
    model = make_pipeline(StandardScaler(), GLLE(n_components=3))
    assert model.fit_transform(sheet).shape == (400, 3)
    assert list(model.get_feature_names_out()) == ["glle0", "glle1", "glle2"]
    assert clone(GLLE(reg=0.1)).get_params()["reg"] == 0.1


def test_pandas_output(sheet: NDArray[np.float64]) -> None:
    """set_output gives a data frame with the index of the data."""
    pandas: Any = pytest.importorskip("pandas")
    frame = pandas.DataFrame(sheet, columns=["x", "y", "z"], index=np.arange(400) + 7)
    out = GLLE().set_output(transform="pandas").fit_transform(frame)
    assert list(out.columns) == ["glle0", "glle1"]
    assert (out.index == frame.index).all()


def test_errors_are_the_engines() -> None:
    """A fit that cannot be is a GlleError, which is a ValueError, with its remedy."""
    with pytest.raises(GlleError, match="at most 19"):
        GLLE(n_neighbors=30).fit(np.random.default_rng(0).random((20, 3)))


def test_small_data_and_components_need_no_parameters() -> None:
    """Half of few points are neighbors; two blobs are bridged with a warning, or an error."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    assert GLLE().fit(X[:12]).posterior_.spec.n_neighbors == 6
    X[20:] += 50
    with pytest.warns(UserWarning, match="1 edge that joins no nearest neighbors was added"):
        GLLE().fit(X)
    with pytest.raises(GlleError, match="2 components"):
        GLLE(disconnected="error").fit(X)


@pytest.mark.parametrize(("random_state", "seed"), [(0, 0), (7, 7), (np.int64(7), 7)])
def test_random_state_is_the_stream_of_draws(sheet: NDArray[np.float64], random_state: int, seed: int) -> None:
    """An integer is the seed; a source of random numbers gives one at each fit."""
    model = GLLE(random_state=random_state).fit(sheet)
    np.testing.assert_array_equal(model.sample(1), model.sample(1, seed=seed))
    sources = [GLLE(random_state=np.random.RandomState(3)).fit(sheet).seed_ for _ in range(2)]
    assert sources[0] == sources[1]
    generator = np.random.RandomState(3)
    assert GLLE(random_state=generator).fit(sheet).seed_ != GLLE(random_state=generator).fit(sheet).seed_
