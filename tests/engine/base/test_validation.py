"""Masked values of numpy.ma, missing ones, and the unit of data."""

import re
from collections import UserDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.base.arrays import array_of
from glle_engine.base.errors import InexactIntegerError, InvalidShapeError, NotFiniteError
from glle_engine.base.validation import Unit, resolve_missing
from glle_engine.estimator import GLLE
from glle_engine.graph.neighbors import kneighbors
from glle_engine.methods import method
from glle_engine.metrics.registry import score

SHEET = manifolds.make("swiss_roll", 60, seed=0).X
LABELS = np.arange(60) % 3


def mask_two(values: Any) -> Any:
    """Return values of which two are masked, as an array of numpy.ma."""
    mask = np.zeros(np.shape(values), bool)
    mask.flat[[3, 20]] = True
    return np.ma.masked_array(values, mask=mask)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fit(mask_two(SHEET)),
        lambda: fit(list(mask_two(SHEET))),
        lambda: fit(SHEET).transform(SHEET, mask_two(SHEET)),
        lambda: fit(SHEET, neighbors=mask_two(kneighbors(SHEET, 8)[0])),
        lambda: method("pca").embed(mask_two(SHEET)),
        lambda: GLLE().fit(mask_two(SHEET)),
        lambda: method("supervised-lle").embed(SHEET, labels=mask_two(LABELS)),
        lambda: method("t-sne").embed(SHEET, init=mask_two(SHEET[:, :2])),
        lambda: score(SHEET, mask_two(SHEET[:, :2]), ["trustworthiness"]),
        lambda: score(SHEET, SHEET[:, :2], ["neighborhood_hit"], labels=mask_two(LABELS)),
    ],
)
def test_masked_values_are_refused_with_their_number(call: Callable[[], Any]) -> None:
    """An array below a mask holds any numbers, such as fill values, which are no data."""
    with pytest.raises(NotFiniteError, match=r"2 of .* values of .* are masked") as caught:
        call()
    assert caught.value.details == {"masked": 2}
    assert "getmaskarray" in caught.value.remedy


@pytest.mark.parametrize("mask", [np.ma.nomask, False, np.zeros(SHEET.shape, bool)])
def test_arrays_without_masked_values_are_their_data(mask: Any) -> None:
    """Equal data, equal bits."""
    whole = fit(np.ma.masked_array(SHEET, mask=mask))
    assert whole.data_sha256 == fit(SHEET).data_sha256
    assert whole.embedding.tobytes() == fit(SHEET).embedding.tobytes()


@pytest.mark.parametrize(("count", "end"), [(10, r"\(1\)\.$"), (12, r"\(1\) and 2 more\.$")])
def test_ten_columns_with_missing_values_are_listed(count: int, end: str) -> None:
    """The others are counted, and nothing is said of others where there are none."""
    X = np.zeros((3, 14))
    X[1, :count] = np.nan
    kept, (note,) = resolve_missing(X, "drop")
    assert kept.tolist() == [True, False, True]
    assert re.search(end, note.message), note


def test_a_unit_is_a_power_of_two_without_constant_features() -> None:
    """Points are moved by the constants; equal points keep all features."""
    X = np.array([[3.0, 7.0, -5.0], [1.0, 7.0, -4.0]])
    unit = Unit.from_data(X)
    assert (unit.exponent, unit.varying.tolist(), unit.origin.tolist()) == (3, [True, False, True], [0, 7, 0])
    np.testing.assert_array_equal(unit.scale(X), X[:, [0, 2]] / 8)
    np.testing.assert_array_equal(unit.shift(X), (X - [0, 7, 0]) / 8)
    same = Unit.from_data(X[[0, 0]])
    assert (same.exponent, same.varying.tolist(), same.origin.tolist()) == (3, [True] * 3, [0, 0, 0])
    np.testing.assert_array_equal(same.scale(X), X / 8)


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("polars.tables", r"pandas\.DataFrame\(X\)"),
        ("h5py._hl.group", r"an array of numbers, such as X\.X or X\[name\]"),
    ],
)
def test_mappings_are_refused_with_the_way_to_an_array(module: str, remedy: str) -> None:
    """A mapping of columns becomes a table; a group of an HDF5 file has arrays by name."""
    mapping = type("Group", (UserDict,), {"__module__": module})
    with pytest.raises(InvalidShapeError, match=remedy):
        array_of(mapping(a=[1.0], b=[2.0]), "the data")


def test_labels_may_be_integers_of_any_size() -> None:
    """Integers beyond 2^53 are refused as data, which float64 would round, and kept as labels."""
    large = [2**53 + 1, 2**60 + 1]
    assert array_of(large, "the labels", are_labels=True).tolist() == large
    with pytest.raises(InexactIntegerError):
        array_of(large)
