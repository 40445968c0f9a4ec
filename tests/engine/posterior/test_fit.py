"""Inputs, errors and progress of a fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import FitSpec, fit, manifolds
from glle_engine.base import errors
from glle_engine.methods import METHODS
from glle_engine.metrics.registry import score
from glle_engine.posterior.selection import advise
from glle_engine.reliability.calibration import calibrate

if TYPE_CHECKING:
    from numpy.typing import NDArray

GLLE, LLE = METHODS["glle"], METHODS["lle"]


def broken(X: NDArray[np.float64], row: int, column: int, value: float) -> NDArray[np.float64]:
    """Return a copy of X with one entry replaced."""
    X = X.copy()
    X[row, column] = value
    return X


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_names_row_and_column(sheet: NDArray[np.float64], value: float) -> None:
    """The first bad entry is named."""
    with pytest.raises(errors.NotFiniteError, match=r"X\[37, 2\]") as caught:
        fit(broken(sheet, 37, 2, value))
    assert caught.value.details == {"row": 37, "column": 2}


@pytest.mark.parametrize(
    ("data", "error", "word"),
    [
        (np.ones((30, 3)), errors.DegenerateDataError, "equal"),
        (np.ones(30), errors.InvalidShapeError, "matrix"),
        (np.ones((3, 4, 5)), errors.InvalidShapeError, "matrix"),
        (np.ones((0, 3)), errors.InvalidShapeError, "matrix"),
        (np.array([["a", "b"]]), errors.InvalidShapeError, "numbers"),
        (np.ones((5, 2)) * 1j, errors.InvalidShapeError, "real"),
        (np.random.default_rng(0).random((3, 3)), errors.TooFewPointsError, "at most 1"),
    ],
)
def test_impossible_data(data: Any, error: type[errors.GlleError], word: str) -> None:
    """Each raises a specific error with a remedy."""
    with pytest.raises(error) as caught:
        fit(data)
    assert word in str(caught.value)


def test_more_components_than_points_span() -> None:
    """P > n - 2 is refused."""
    with pytest.raises(errors.TooFewPointsError, match="at most 4"):
        fit(np.random.default_rng(0).random((6, 3)), n_neighbors=3, n_components=5)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"method": "mcmc"}, "em, direct"),
        ({"variant": "paper"}, "constrained, published"),
        ({"n_neighbors": 1}, "n_neighbors"),
        ({"n_neighbors": 10.0}, "integer"),
        ({"n_neighbors": True}, "integer"),
        ({"n_components": 0}, "n_components"),
        ({"reg": 0}, "reg"),
        ({"reg": float("inf")}, "reg"),
        ({"tol": -1}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"mean": "derived"}, "method='direct'"),
        ({"covariance": "full"}, "variant='published'"),
        ({"covariance": "full-corrected"}, "variant='published'"),
        ({"covariance": "full-corrected", "variant": "published", "method": "direct"}, "method='em'"),
        ({"tol": float("nan")}, "tol"),
        ({"variance": "ml", "variant": "published"}, "variant='constrained'"),
        ({"noise": "tangent", "variant": "published"}, "variant='constrained'"),
        ({"noise": "white"}, "isotropic, tangent"),
    ],
)
def test_impossible_parameters(options: dict[str, Any], word: str) -> None:
    """Each value outside its domain, or without meaning beside the others, names the remedy."""
    with pytest.raises(errors.InvalidParameterError) as caught:
        FitSpec(**options)
    assert word in str(caught.value)


def test_numpy_numbers_are_numbers(sheet: NDArray[np.float64]) -> None:
    """A numpy number is as good as one of Python and is stored as such, so that a specification is JSON-able."""
    asked: Any = {"n_neighbors": np.uint8(8), "max_iter": np.int32(3), "reg": np.float32(0.5), "tol": np.int64(0)}
    spec = fit(sheet, variant="published", **asked).spec
    assert spec == FitSpec(variant="published", n_neighbors=8, max_iter=3, reg=0.5, tol=0.0)
    assert json.loads(json.dumps(spec.to_dict())) == spec.to_dict()
    assert (
        LLE.spec(n_neighbors=np.int16(7), reg=np.float32(0.25)).to_dict() == LLE.spec(n_neighbors=7, reg=0.25).to_dict()
    )


def test_numpy_numbers_beside_a_fit(sheet: NDArray[np.float64]) -> None:
    """Sheets, advice, scores and calibrations take numpy numbers, and return JSON-able ones."""
    asked: Any = {"n": np.uint8(200), "seed": np.int64(3), "noise": np.float32(0.5)}
    np.testing.assert_array_equal(
        manifolds.make("s_curve", **asked).X, manifolds.make("s_curve", 200, seed=3, noise=0.5).X
    )
    ks: Any = np.arange(8, 10)
    advice = advise(sheet, n_neighbors=ks).to_dict()
    assert json.loads(json.dumps(advice)) == advise(sheet, n_neighbors=[8, 9]).to_dict()
    k: Any = np.int16(9)
    assert score(sheet, sheet, ["continuity"], n_neighbors=k) == score(sheet, sheet, ["continuity"], n_neighbors=9)
    few: Any = {"n_half_samples": np.int8(4), "n_draws": np.int8(4)}
    posterior = fit(sheet)
    assert calibrate(posterior, sheet, **few).trace == calibrate(posterior, sheet, n_half_samples=4, n_draws=4).trace


@pytest.mark.parametrize(
    "options",
    [
        {"n_neighbors": np.True_},
        {"n_neighbors": np.float64(10)},
        {"n_neighbors": np.arange(3)},
        {"reg": np.True_},
        {"reg": np.ones(2)},
        {"reg": "1"},
        {"reg": np.float64("nan")},
    ],
)
def test_other_types_are_no_numbers(options: dict[str, Any]) -> None:
    """Booleans, arrays, words, and fractions for integers are refused, by posteriors and by methods."""
    for spec in (FitSpec, LLE.spec):
        with pytest.raises(errors.InvalidParameterError, match=next(iter(options))):
            spec(**options)


@pytest.mark.parametrize(
    ("idle", "beside"),
    [
        ({"max_iter": 3, "tol": 0}, {}),
        ({"max_iter": 3, "tol": 0.5}, {"method": "direct"}),
        ({"max_iter": 3, "tol": 0.5}, {"method": "direct", "variant": "published"}),
        ({"variance": "dirichlet"}, {"noise": "tangent"}),
    ],
)
def test_idle_options_make_no_other_fit(
    sheet: NDArray[np.float64], idle: dict[str, Any], beside: dict[str, Any]
) -> None:
    """An option that changes no bit of a fit changes neither the specification nor, therefore, an id."""
    given, plain = FitSpec(**beside, **idle), FitSpec(**beside)
    assert given == plain
    assert given.to_dict() == plain.to_dict()
    assert GLLE.spec(**beside, **idle).to_dict() == GLLE.spec(**beside).to_dict()
    assert replace(plain, **idle) == plain
    assert {name: array.tobytes() for name, array in fit(sheet, **beside, **idle).arrays().items()} == {
        name: array.tobytes() for name, array in fit(sheet, **beside).arrays().items()
    }


@pytest.mark.parametrize("option", [{"max_iter": 3}, {"tol": 0}, {"covariance": "full-corrected"}])
def test_options_that_change_a_fit_change_its_specification(option: dict[str, Any]) -> None:
    """The published em keeps its options."""
    assert FitSpec(variant="published", **option) != FitSpec(variant="published")


def test_spec_round_trip() -> None:
    """A specification survives its dictionary; an unknown name is refused."""
    spec = FitSpec(method="direct", mean="derived", reg=1)
    assert FitSpec.from_dict(spec.to_dict()) == spec
    with pytest.raises(errors.InvalidParameterError, match="neighbors"):
        FitSpec.from_dict({"neighbors": 3})


def test_figures_of_the_data_do_not_depend_on_where_they_lie(wide: NDArray[np.float64]) -> None:
    """An exact translation changes no bit of any figure, however far it is; more components look at eigenvalues."""
    X = np.rint(wide * 2**20)
    for p in (2, 4):
        before = fit(X, n_components=p).diagnostics.figures
        after = fit(X + 2.0**50, n_components=p).diagnostics.figures
        for name in ("feature_scale_ratio", "flat_neighborhoods", "constant_features", "points_with_near_duplicates"):
            assert after[name] == before[name], name


def test_flat_neighborhoods_are_counted_in_any_dimension() -> None:
    """A line has no neighborhood that spans 2 dimensions, a plane none that spans 3, in any unit."""
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    grid += 0.1 * np.random.default_rng(0).standard_normal(grid.shape)
    plane = grid @ np.random.default_rng(1).standard_normal((2, 5))
    space = plane + 0.1 * np.random.default_rng(2).standard_normal(plane.shape)
    line = np.outer(np.arange(108.0) + 0.1 * np.random.default_rng(3).standard_normal(108), np.arange(1.0, 6.0))
    for unit in (1.0, 1e-200):
        flat = [
            fit(X * unit, n_components=p, n_neighbors=6).diagnostics.figures["flat_neighborhoods"]
            for X, p in ((line, 1), (line, 2), (plane, 2), (plane, 3), (space, 3))
        ]
        assert flat == [0, len(line), 0, len(plane), 0]


def test_progress_runs_through_the_stages_and_can_cancel(sheet: NDArray[np.float64]) -> None:
    """Every stage is reported to its end; an exception of the callback cancels the fit."""
    reports: list[tuple[int, int, str]] = []
    fit(sheet, on_progress=lambda *args: reports.append(args))
    stages = ["neighbors", "weights", "embedding", "posterior", "diagnostics"]
    assert list(dict.fromkeys(stage for _, _, stage in reports)) == stages
    last = {stage: (done, total) for done, total, stage in reports}
    assert all(done == total for done, total in last.values())

    class StopError(Exception):
        pass

    def stop(done: int, total: int, stage: str) -> None:
        if stage == "weights":
            raise StopError

    with pytest.raises(StopError):
        fit(sheet, on_progress=stop)


def test_lists_and_other_dtypes(sheet: NDArray[np.float64]) -> None:
    """Lists, float32 and integers are computed in float64."""
    assert fit(sheet.tolist()).embedding.tobytes() == fit(sheet).embedding.tobytes()
    assert fit(sheet.astype(np.float32)).embedding.dtype == np.float64
    assert fit((sheet * 1000).astype(int)).embedding.shape == (400, 2)


def test_input_is_left_alone() -> None:
    """The data are neither changed nor frozen."""
    X = manifolds.make("s_curve", 100, seed=0).X
    before = X.copy()
    fit(X)
    np.testing.assert_array_equal(X, before)
    assert X.flags.writeable


def test_diagnostics_are_json(sheet: NDArray[np.float64]) -> None:
    """Diagnostics and head survive JSON without NaN, for every kind of posterior."""
    import json  # noqa: PLC0415  # for this test only

    for options in ({}, {"method": "direct"}, {"variant": "published"}):
        head = fit(sheet, **options).head()  # type: ignore[arg-type]  # literals, as the parameters are
        assert json.loads(json.dumps(head, allow_nan=False)) == head
