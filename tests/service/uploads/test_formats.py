"""Valid and invalid uploaded bodies."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from service.uploads.registry import format_of
from tests.service.uploads.bodies import NPY, X, header, npy, read, refused
from worker.base.problems import ProblemError


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<f2", "<i4", ">i8", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_every_real_dtype_and_order(dtype: str, order: Any) -> None:
    """Values are equal for every byte order and memory order."""
    values = np.arange(12).reshape(4, 3).astype(dtype, order=order)
    np.testing.assert_array_equal(read(npy(values), NPY).values, values)


def test_npy_version_2() -> None:
    """The format version with long headers is read, too."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, X, version=(2, 0))
    np.testing.assert_array_equal(read(buffer.getvalue(), NPY).values, X)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(npy(np.zeros((2, 3, 4))), "invalid-shape", id="3-d"),
        pytest.param(npy(np.zeros(5)), "invalid-shape", id="1-d"),
        pytest.param(npy(np.float64(3)), "invalid-shape", id="0-d"),
        pytest.param(npy(np.zeros((0, 3))), "empty-data", id="no rows"),
        pytest.param(npy(np.zeros((3, 0))), "empty-data", id="no columns"),
        pytest.param(npy(np.array([[{}, []]], object), allow_pickle=True), "unsupported-dtype", id="object"),
        pytest.param(npy(np.array([["a"]])), "unsupported-dtype", id="str"),
        pytest.param(npy(np.array([[1j]])), "unsupported-dtype", id="complex"),
        pytest.param(npy(np.zeros((1, 1), "M8[s]")), "unsupported-dtype", id="datetime"),
        pytest.param(npy(np.zeros((1, 1), [("a", "f8")])), "unsupported-dtype", id="record"),
        pytest.param(npy(X)[:-1], "truncated-npy", id="last byte missing"),
        pytest.param(npy(X)[:130], "truncated-npy", id="cut in the data"),
        pytest.param(npy(X)[:40], "malformed-npy", id="cut in the header"),
        pytest.param(npy(X)[:4], "malformed-npy", id="cut in the magic"),
        pytest.param(npy(X) + b"more", "malformed-npy", id="more after it"),
        pytest.param(b"1,2,3\n4,5,6\n", "malformed-npy", id="CSV"),
        pytest.param(b"PK\x03\x04" + bytes(100), "malformed-npy", id="npz"),
        pytest.param(header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3)}"), "malformed-npy", id="-1"),
        pytest.param(
            header("{'descr': '<f8', 'fortran_order': False, 'shape': (True, 3)}"), "malformed-npy", id="True"
        ),
        pytest.param(
            header("{'descr': '<f8', 'fortran_order': False, 'shape': (9**99, 3)}"), "malformed-npy", id="expr"
        ),
        pytest.param(
            header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**62}, 3)}}"), "malformed-npy", id="huge"
        ),
        pytest.param(
            header("{'descr': '<f8', 'fortran_order': False, 'shape': (4000, 3)}"), "truncated-npy", id="empty"
        ),
        pytest.param(header("{'descr': '<f8', 'fortran_order': False, 'shape': (5001, 3)}"), "too-many-points", id="n"),
        pytest.param(header("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 21)}"), "too-many-features", id="d"),
        pytest.param(header("[" * 5000), "malformed-npy", id="deep"),
        pytest.param(header("{'descr': '<f8'}"), "malformed-npy", id="no shape"),
        pytest.param(header("{}", b"\x09\x00"), "malformed-npy", id="version 9"),
    ],
)
def test_bad_npy(body: bytes, code: str) -> None:
    """Each bad npy body is a 422 with its code; nothing is unpickled or allocated."""
    assert refused(body, NPY).code == code


def test_truncated_npy_has_both_lengths() -> None:
    """The details have the announced and the received bytes."""
    assert refused(npy(X)[:-10], NPY).details == {"announced": 144, "came": 134}


def test_1d_npy_has_the_reshape_as_remedy() -> None:
    """The remedy has the expression."""
    assert "reshape(-1, 1)" in refused(npy(np.zeros(5)), NPY).remedy


def test_csv_with_and_without_header() -> None:
    """A header has the names; without one the first row is data; BOM, CRLF and blank lines are accepted."""
    plain = read("1,2\n3,4\n", "text/csv")
    assert plain.names is None
    assert plain.values.tolist() == [[1, 2], [3, 4]]
    headed = read('\ufeffa,"b ""x"", y"\r\n\r\n 1 ,2e0\r\n-3,+4\r\n', "text/csv; charset=utf-8")
    assert headed.names == ["a", 'b "x", y']
    assert headed.values.tolist() == [[1, 2], [-3, 4]]


def test_csv_round_trips_every_bit() -> None:
    """The output of repr is read as the same float64, over several blocks."""
    values = np.random.default_rng(1).normal(size=(3000, 2)) * 10.0 ** np.arange(-150, 150, 150)
    body = "\n".join(",".join(repr(float(v)) for v in row) for row in values)
    np.testing.assert_array_equal(read(body, "text/csv").values, values)


@pytest.mark.parametrize(("label", "names"), [("kind", ["x", "y"]), ("2", ["x", "y"])])
def test_csv_label_column(label: str, names: list[str]) -> None:
    """The named or numbered column becomes the labels, as strings."""
    table = read("x,y,kind\n1,2,b\n3,4,a\n", "text/csv", label=label)
    assert table.names == names
    assert table.values.tolist() == [[1, 2], [3, 4]]
    assert table.labels is not None
    assert table.labels.tolist() == ["b", "a"]


def test_csv_numeric_labels() -> None:
    """Labels are numbers if all of them are numeric, also without a header."""
    table = read("7,1,2\n8,3,4\n", "text/csv", label="0")
    assert table.labels is not None
    assert (table.labels.dtype.kind, table.labels.tolist()) == ("f", [7, 8])
    assert table.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("nan", "not-finite"),
        ("NaN", "not-finite"),
        ("-inf", "not-finite"),
        ("1e999", "not-finite"),
        ("", "bad-cell"),
        ("n/a", "bad-cell"),
        ("1_000", "bad-cell"),
        ("0x10", "bad-cell"),
        ("6\x1d", "bad-cell"),
        ("9007199254740993", "inexact-integer"),
    ],
)
@pytest.mark.parametrize("row", [1, 1500])
def test_bad_csv_cell_is_named(cell: str, code: str, row: int) -> None:
    """The problem names the row of the data, the column and its name, in the first block and after."""
    rows = [["1.5", "2"] for _ in range(1600)]
    rows[row - 1][1] = cell
    problem = refused("x,y\n" + "\n".join(map(",".join, rows)), "text/csv")
    assert problem.code == code
    place = {"row": row, "column": 2, "name": "y", "value": cell, "rows_affected": 1, "rows": [row]}
    assert problem.details == (place if code == "inexact-integer" else {**place, "options": {"ignore": ["y"]}})
    assert code == "inexact-integer" or "?ignore=y" in problem.remedy


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("x,y\n", "empty-data"),
        ("\n\n", "empty-data"),
        ("1,2\n3\n", "ragged-row"),
        ("1,2\n3,4,5\n", "ragged-row"),
        ("x,x\n1,2\n", "invalid-names"),
        ('1,"2\n', "malformed-csv"),
        (b"\x93NUMPY\xff\xfe", "malformed-csv"),
        ("1,b\n2,c\n", "bad-cell"),
        ("1\n" * 5001, "too-many-points"),
        (",".join("1" * 21), "too-many-features"),
    ],
)
def test_bad_csv(body: str | bytes, code: str) -> None:
    """Each bad CSV body is a 422 with its code."""
    assert refused(body, "text/csv").code == code


def test_unknown_label_column_lists_the_columns() -> None:
    """The remedy lists the columns."""
    assert "x, y" in refused("x,y\n1,2\n", "text/csv", label="z").remedy
    assert "0 to 1" in refused("1,2\n", "text/csv", label="2").remedy


def test_json_forms() -> None:
    """The body is a matrix, or an object with names and labels."""
    assert read("[[1, 2.5], [3, 4]]", "application/json").values.tolist() == [[1, 2.5], [3, 4]]
    body = {"data": [[1, 2], [3, 4]], "names": ["x", "y"], "labels": ["a", "b"]}
    table = read(json.dumps(body), "application/json")
    assert table.names == ["x", "y"]
    assert table.labels is not None
    assert table.labels.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("[[1, 2], [3, NaN]]", "not-finite"),
        ("[[1, 2], [3, 1e999]]", "not-finite"),
        ("[[1, 2], [3, null]]", "bad-cell"),
        ('[[1, 2], [3, "4"]]', "bad-cell"),
        ("[[1, 2], [3, true]]", "bad-cell"),
        ("[[1, 2], [3, 9007199254740993]]", "inexact-integer"),
        (f"[[1, 2], [3, {10**400}]]", "inexact-integer"),
    ],
)
def test_bad_json_value_is_named(body: str, code: str) -> None:
    """The problem has the row and the column, from 1."""
    problem = refused(body, "application/json")
    assert problem.code == code
    assert (problem.details["row"], problem.details["column"]) == (2, 2)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("[[1, 2], [3", "malformed-json"),
        (b"\xff\xfe", "malformed-json"),
        ("[" * 100_000, "malformed-json"),
        ("3", "malformed-json"),
        ("{}", "malformed-json"),
        ('{"data": [[1]], "colours": [1]}', "malformed-json"),
        ('{"data": [[1]], "names": [1]}', "malformed-json"),
        ('{"data": [[1]], "names": ["x", "y"]}', "invalid-names"),
        ('{"data": [[1]], "labels": [1, 2]}', "malformed-json"),
        ('{"data": [[1]], "labels": [true]}', "malformed-json"),
        ('{"data": [[1], [2]], "labels": ["a", 1]}', "malformed-json"),
        ("[]", "invalid-shape"),
        ("[1, 2]", "invalid-shape"),
        ("[[[1]]]", "invalid-shape"),
        ("[[]]", "empty-data"),
        ("[[1, 2], [3]]", "ragged-row"),
        ("[[1, 2], 3]", "ragged-row"),
        ("[[1, 2], [3, [4]]]", "bad-cell"),
    ],
)
def test_bad_json(body: str | bytes, code: str) -> None:
    """Each bad JSON body is a 422 with its code."""
    assert refused(body, "application/json").code == code


@pytest.mark.parametrize("kind", ["", "text/html", "application/octet-stream", "text/csv; charset=ebcdic"])
def test_other_types_are_415(kind: str) -> None:
    """The problem lists the supported ones."""
    with pytest.raises(ProblemError) as caught:
        format_of(kind)
    assert (caught.value.problem.status, caught.value.problem.code) == (415, "unsupported-media-type")
