"""Data and parameters that a fit refuses, and its figures and progress."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import FitSpec, fit, manifolds
from glle_engine.base import errors


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (np.where(np.arange(90).reshape(30, 3) == 44, -np.inf, 1.0), errors.NotFiniteError, r"X\[14, 2\]"),
        (np.ones((30, 3)), errors.DegenerateDataError, "equal"),
        (np.ones(30), errors.InvalidShapeError, "matrix"),
        (np.ones((0, 3)), errors.InvalidShapeError, "matrix"),
        (np.array([["a", "b"]]), errors.InvalidShapeError, "numbers"),
        (np.ones((5, 2)) * 1j, errors.InvalidShapeError, "real"),
        (np.eye(3), errors.TooFewPointsError, "at most 1"),
        (np.r_[np.eye(30)[:, :3], 1e-170 * np.vander(np.arange(15.0), 3)], errors.OutOfRangeError, "leave the range"),
    ],
)
def test_impossible_data(data: Any, error: type[errors.GlleError], words: str) -> None:
    """Each kind of invalid data raises its own error with a remedy; the first entry that is not finite is named."""
    with pytest.raises(error, match=words) as caught:
        fit(data)
    assert error is not errors.NotFiniteError or caught.value.details == {"row": 14, "column": 2}


@pytest.mark.parametrize(
    "options",
    [
        {"n_neighbors": 1},
        {"n_components": 0},
        {"reg": 0},
        {"tol": -1},
        {"max_iter": 0},
        {"metric": "precomputed", "standardize": "zscore"},
    ],
    ids=str,
)
def test_values_outside_their_domain_are_refused(options: dict[str, Any]) -> None:
    """The error names the parameter."""
    with pytest.raises(errors.InvalidParameterError, match=next(iter(options))):
        FitSpec.from_dict(options)


def test_numpy_numbers_are_numbers(sheet: NDArray[np.float64]) -> None:
    """Numpy numbers as parameters are stored as Python numbers, so that specifications are JSON-able."""
    asked: Any = {"n_neighbors": np.uint8(8), "max_iter": np.int32(3), "reg": np.float32(0.5), "tol": np.int64(0)}
    posterior = fit(sheet, variant="published", **asked)
    expected = FitSpec(variant="published", n_neighbors=8, max_iter=3, reg=0.5, tol=0.0, landmarks="all")
    assert json.dumps(posterior.spec.to_dict()) == json.dumps(expected.to_dict())
    asked = {"n": np.uint8(200), "seed": np.int64(3), "noise": np.float32(0.5)}
    drawn = manifolds.make("s_curve", **asked).X
    np.testing.assert_array_equal(drawn, manifolds.make("s_curve", 200, seed=3, noise=0.5).X)


def test_figures_of_the_data_do_not_depend_on_where_they_lie(wide: NDArray[np.float64]) -> None:
    """Moving the data by an exact translation changes no bit of a figure."""
    X = np.rint(wide * 2**20)
    for p in (2, 4):
        before = fit(X, n_components=p).diagnostics.figures
        after = fit(X + 2.0**50, n_components=p).diagnostics.figures
        for name in ("feature_scale_ratio", "flat_neighborhoods", "constant_features", "points_with_near_duplicates"):
            assert after[name] == before[name], name


def test_flat_neighborhoods_are_counted_in_any_dimension() -> None:
    """All neighborhoods of a line are too flat for 2 components, and of a plane for 3, in any unit."""
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


def test_progress_runs_through_the_stages(sheet: NDArray[np.float64]) -> None:
    """Every stage is reported until it is done, in the documented order."""
    last: dict[str, tuple[int, int]] = {}
    fit(sheet, landmarks=151, on_progress=lambda done, total, stage: last.update({stage: (done, total)}))
    assert list(last) == ["landmarks", "neighbors", "weights", "embedding", "posterior", "diagnostics", "placing"]
    assert all(done == total for done, total in last.values())
    assert (last["landmarks"], last["placing"]) == ((151, 151), (249, 249))


def test_lists_and_other_dtypes(sheet: NDArray[np.float64]) -> None:
    """Lists, float32 and integers are accepted, and the data are neither changed nor made read-only."""
    X = sheet.copy()
    assert fit(sheet.tolist()).embedding.tobytes() == fit(X).embedding.tobytes()
    np.testing.assert_array_equal(X, sheet)
    assert X.flags.writeable
    assert fit(sheet.astype(np.float32)).embedding.dtype == np.float64
    assert fit((sheet * 1000).astype(int)).embedding.shape == (400, 2)


@pytest.mark.parametrize("options", [{}, {"method": "direct"}, {"variant": "published"}])
def test_diagnostics_are_json(sheet: NDArray[np.float64], options: Any) -> None:
    """The metadata of every kind of posterior can be written as JSON without NaN, and read back."""
    head = fit(sheet, **options).head()
    assert json.loads(json.dumps(head, allow_nan=False)) == head
