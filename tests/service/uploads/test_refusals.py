"""Refused bodies of each format: one table of problems."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from glle_engine.tables.frames import frame_columns
from glle_engine.tables.packed import pack
from service.uploads.formats import arrow_table
from service.uploads.limits import Limits
from service.uploads.registry import format_of
from tests.service.uploads.bodies import (
    ARROW,
    BOTH,
    CSV,
    JSON,
    KINDS,
    NPY,
    NPZ,
    PARQUET,
    X,
    frame,
    header,
    npy,
    npz,
    parquet_file,
    read,
    refusal,
    stream,
)
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.mark import ParameterSet


def npy_of_shape(shape: str, descr: str = "<f8") -> bytes:
    """Return an npy file of this shape without values."""
    return header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}")


def zip_members(**members: bytes) -> bytes:
    """Return a zip file of these bytes by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name + ".npy", body)
    return buffer.getvalue()


def damaged_zip() -> bytes:
    """Return a zip file whose member does not match its checksum."""
    body = bytearray(npz(data=np.zeros((999, 9))))
    body[body.index(b"PK\1\2") + 16] ^= 0xFF
    return bytes(body)


def sparse(**changes: Any) -> bytes:
    """Return a changed file of scipy.sparse.save_npz."""
    parts = {"data": np.ones(2), "indices": np.array([0, 2]), "indptr": np.array([0, 1, 2, 2, 2])}
    return npz(**{"format": np.array("csr"), "shape": np.array([4, 3]), **parts, **changes})


def bad(media: str, code: str, *bodies: bytes | str, **options: Any) -> list[ParameterSet]:
    """Return the case of bodies with one code."""
    return [pytest.param(media, bodies, options, code, id=f"{media} {code}")]


def both(code: str, columns: dict[str, Any], **options: Any) -> list[ParameterSet]:
    """Return the cases of a table in Arrow and Parquet."""
    table = pa.table(columns)
    cases = [*bad(ARROW, code, stream(table), **options), *bad(PARQUET, code, parquet_file(table), **options)]
    return [pytest.param(*each.values, id=f"{each.id} {' '.join(columns)} {options}") for each in cases]


XYZ = {"x": X[:, 0], "y": X[:, 1]}
OBJECTS = npy(np.array([[{}, []]], object), allow_pickle=True)
DURATIONS = pa.array(range(6), pa.duration("s"))


NUMBER = {"name": "x", "kind": "number", "type": "", "is_category": False}


def packed(**change: Any) -> bytes:
    """Return packed columns with changed arrays; a changed `columns` is merged into the description."""
    members: dict[str, Any] = pack(frame_columns(pa.table({"x": [1.0, 2.0], "k": ["u", "v"]})))
    described = {**json.loads(members["columns"].tobytes()), **change.pop("columns", {})}
    members["columns"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
    return npz(**{name: array for name, array in {**members, **change}.items() if array is not None})


CASES = [
    *bad(NPY, "invalid-shape", npy(np.zeros((2, 3, 4))), npy(np.zeros(5)), npy(np.float64(3))),
    *bad(NPY, "empty-data", npy(np.zeros((0, 3))), npy(np.zeros((3, 0)))),
    *bad(NPY, "unsupported-dtype", OBJECTS, npy(np.array([["a"]])), npy(np.array([[1j]]))),
    *bad(NPY, "unsupported-dtype", npy(np.zeros((1, 1), "M8[s]")), npy(np.zeros((1, 1), [("a", "f8")]))),
    *bad(NPY, "truncated-npy", npy(X)[:-1], npy(X)[:130], npy_of_shape("(4000, 3)")),
    *bad(NPY, "malformed-npy", npy(X)[:40], npy(X)[:4], npy(X) + b"x", b"1,2,3\n4,5,6\n", b"PK\x03\x04" + bytes(99)),
    *bad(NPY, "malformed-npy", *map(npy_of_shape, ("(-1, 3)", "(True, 3)", "(9**99, 3)", f"({2**62}, 3)"))),
    *bad(NPY, "malformed-npy", header("[" * 5000), header("{'descr': '<f8'}"), header("{}", b"\x09\x00")),
    *bad(NPY, "too-many-points", npy_of_shape("(5001, 3)")),
    *bad(NPY, "too-many-features", npy_of_shape("(3, 21)")),
    *bad(CSV, "empty-data", "x,y\n", "\n\n"),
    *bad(CSV, "ragged-row", "1,2\n3\n", "1,2\n3,4,5\n"),
    *bad(CSV, "invalid-names", "x,x\n1,2\n"),
    *bad(CSV, "malformed-csv", '1,"2\n', b"\x93NUMPY\xff\xfe"),
    *bad(CSV, "unsupported-column", "1,b\n2,c\n"),
    *bad(CSV, "too-many-points", "1\n" * 5001),
    *bad(CSV, "too-many-features", ",".join("1" * 21)),
    *bad(CSV, "unsupported-column", "x,c\n1,a\n", colors="c"),
    *bad(CSV, "missing-value", "x,c\n1,\n", "x,c\n1,nan\n", colors="c"),
    *bad(CSV, "no-such-column", "x,c\n1,2\n", colors="d"),
    *bad(CSV, "same-column", "x,c\n1,2\n", labels="c", colors="c"),
    *bad(CSV, "empty-data", "x\n1\n", colors="x"),
    *bad("text/csv; header=absent", "bad-cell", "a,b\n1,2\n"),
    *bad(JSON, "malformed-json", "[[1, 2], [3", b"\xff\xfe", "[" * 100_000, "3", "{}"),
    *bad(JSON, "malformed-json", '{"data": [[1]], "colours": [1]}', '{"data": [[1]], "names": [1]}'),
    *bad(JSON, "malformed-json", '{"data": [[1]], "labels": [1, 2]}', '{"data": [[1]], "labels": [true]}'),
    *bad(JSON, "malformed-json", '{"data": [[1], [2]], "labels": ["a", 1]}'),
    *bad(
        JSON, "malformed-json",
        *(f'{{"data": [[1], [2]], "colors": {each}}}' for each in ("[1]", '["a", "b"]', "[1, null]", "[1, NaN]", "3")),
    ),
    *bad(
        JSON, "malformed-json",
        *(f'{{"data": [[1], [2]], "ids": {each}}}' for each in ("[1]", "[1.5, 2]", '"ab"', "[[1], [2, 3]]", "[[]]")),
    ),
    *bad(JSON, "invalid-names", '{"data": [[1]], "names": ["x", "y"]}'),
    *bad(JSON, "invalid-shape", "[]", "[1, 2]", "[[[1]]]"),
    *bad(JSON, "empty-data", "[[]]"),
    *bad(JSON, "ragged-row", "[[1, 2], [3]]", "[[1, 2], 3]"),
    *bad(JSON, "bad-cell", "[[1, 2], [3, [4]]]"),
    *bad(NPZ, "malformed-npz", b"PK\x03\x04" + bytes(100), npy(X), npz(data=X)[:-30], damaged_zip()),
    *bad(NPZ, "no-data-member", npz(), npz(a=X, b=X)),
    *bad(NPZ, "unknown-member", npz(data=X, y=KINDS)),
    *bad(NPZ, "invalid-shape", npz(data=X[0])),
    *bad(NPZ, "unsupported-dtype", npz(data=np.array([["a"]])), zip_members(data=OBJECTS)),
    *bad(NPZ, "malformed-npy", zip_members(data=b"x" * 200), zip_members(data=npy(X) + b"x")),
    *bad(NPZ, "truncated-npy", zip_members(data=npy(X)[:-8])),
    *bad(NPZ, "too-many-points", zip_members(data=npy_of_shape("(5001, 3)"))),
    *bad(NPZ, "invalid-member", npz(data=X, labels=np.arange(5)), npz(data=X, labels=X), npz(data=X, colors=KINDS)),
    *bad(NPZ, "invalid-member", zip_members(data=npy(X), labels=npy_of_shape("(6,)", "<U0"))),
    *bad(NPZ, "invalid-member", npz(data=X, names=np.array([], str))),
    *bad(NPZ, "not-finite", npz(data=X, labels=np.full(6, np.inf))),
    *bad(NPZ, "label-too-long", npz(data=X, labels=np.array(["x" * 1001] * 6))),
    *bad(NPZ, "invalid-names", npz(data=X, names=["a", "a", "b"])),
    *bad(NPZ, "malformed-npz", sparse(format=np.array("bsr")), sparse(indptr=np.array([0, 1, 1]))),
    *bad(NPZ, "malformed-npz", sparse(format=np.array("coo")), sparse(format=np.array(3))),
    *bad(NPZ, "malformed-npz", sparse(shape=np.array([-4, 3])), sparse(data=np.ones((1, 2)))),
    *bad(NPZ, "malformed-npz", sparse(indices=np.array([0, 3])), sparse(indices=np.array([-1, 0]))),
    *bad(NPZ, "malformed-npz", sparse(indptr=np.array([0, 2, 1, 2, 2]))),
    *bad(NPZ, "too-many-features", sparse(shape=np.array([4, 10**9]))),
    *bad(NPZ, "malformed-npz", *(packed(columns=each) for each in ({"rows": -1}, {"rows": True}, {"index": [5]}))),
    *bad(NPZ, "malformed-npz", packed(columns={"columns": [3]}), packed(columns={"columns": [{"name": "x"}]})),
    *bad(NPZ, "malformed-npz", *(npz(columns=np.frombuffer(each, np.uint8)) for each in (b"[[[", b"3"))),
    *bad(NPZ, "malformed-npz", *(packed(**{"1_lengths": np.array(each)}) for each in ([1, 9], [2**62, 2**62]))),
    *bad(NPZ, "malformed-npz", packed(**{"0_values": np.ones((2, 2))}), packed(**{"0_values": None})),
    *bad(NPZ, "malformed-npz", packed(**{"1_text": np.array([255, 255], np.uint8)})),
    *bad(NPZ, "too-many-points", packed(columns={"rows": 10**12})),
    *bad(NPZ, "invalid-member", packed(columns={"rows": 3}), packed(**{"0_values": np.ones((2, 2, 2))})),
    *bad(NPZ, "invalid-member", packed(**{"0_values": np.array(["a", "b"])})),
    *bad(NPZ, "invalid-names", packed(columns={"columns": 2 * [NUMBER]}, **{"1_values": np.ones(2)})),
    *bad(ARROW, "malformed-arrow", b"1,2\n3,4\n" * 40, stream(frame())[:500], npy(X)),
    *bad(PARQUET, "malformed-parquet", b"1,2\n3,4\n" * 40, parquet_file(frame())[:500], npy(X)),
    *both("too-many-points", {"x": np.zeros(5001)}),
    *both("too-many-features", {f"x{i}": [0.0] for i in range(21)}),
    *both("empty-data", {"x": pa.array([], pa.float64())}),
    *both("empty-data", {"x": [1.0]}, labels="x"),
    *both("inexact-integer", {"x": [1, 2**53 + 1]}),
    *both("unsupported-column", {**XYZ, "kind": KINDS}),
    *both("unsupported-column", {**XYZ, "kind": KINDS}, colors="kind"),
    *both("unsupported-column", {**XYZ, "many": [[1.0]] * 5 + [[1.0, 2.0]]}),
    *both("unsupported-column", {**XYZ, "many": [[1.0]] * 6}, labels="many"),
    *both("no-such-column", XYZ, labels="kind"),
    *both("no-such-column", XYZ, colors="kind"),
    *both("same-column", XYZ, labels="x", colors="x"),
]  # fmt: skip


@pytest.mark.parametrize(("media", "bodies", "options", "code"), CASES)
def test_bad_bodies_are_refused(
    media: str, bodies: tuple[bytes | str, ...], options: dict[str, Any], code: str
) -> None:
    """Each is a client problem with its code and a remedy; nothing is unpickled or allocated."""
    for body in bodies:
        assert refusal(body, media, **options).code == code, body[:80]


def test_the_length_and_the_shape_of_npy_are_in_the_problem() -> None:
    """The problem has the announced and the received bytes, and the call that makes a vector a matrix."""
    assert refusal(npy(X)[:-10], NPY).details == {"announced": 144, "came": 134}
    assert "reshape(-1, 1)" in refusal(npy(np.zeros(5)), NPY).remedy


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        *[(cell, "not-finite") for cell in ("-inf", "1e999")],
        *[(cell, "missing-value") for cell in ("", "n/a", "nan", "NaN")],
        *[(cell, "bad-cell") for cell in ("1_000", "0x10", "6\x1d")],
        ("9007199254740993", "inexact-integer"),
    ],
)
@pytest.mark.parametrize("row", [1, 1500])
def test_bad_csv_cell_is_named(cell: str, code: str, row: int) -> None:
    """The problem names the row of the data, the column and its name, in the first block and after."""
    rows = [["1.5", "2"] for _ in range(1600)]
    rows[row - 1][1] = cell
    problem = refusal("x,y\n" + "\n".join(map(",".join, rows)), CSV)
    assert problem.code == code
    place = {"row": row, "column": 2, "name": "y", "value": cell, "rows_affected": 1, "rows": [row]}
    assert problem.details == {**place, "options": {"ignore": ["y"]}}
    assert "?ignore=y" in problem.to_dict()["remedy"]
    assert ("If the first row has units" in problem.remedy) == (code == "bad-cell" and row == 1)
    assert f"row {row}, counted from 1" in problem.detail


def test_labels_and_colors_are_beside_as_many_features_as_are_allowed() -> None:
    """Twenty features, the limit, have two more columns beside them; without their roles there are 22 features."""
    body = ",".join(f"x{i}" for i in range(22)) + "\n" + ",".join(["1.5"] * 22) + "\n" + ",".join(["2.5"] * 22) + "\n"
    assert read(body, CSV, labels="x3", colors="x7").values.shape == (2, 20)
    assert refusal(body, CSV).code == "too-many-features"


def test_columns_of_csv_are_named() -> None:
    """The remedy lists the columns; a label column before a bad cell counts."""
    assert "x, y" in refusal("x,y\n1,2\n", CSV, labels="z").remedy
    assert "0 to 1" in refusal("1,2\n", CSV, labels="2").remedy
    assert refusal("kind,x\na,1\nb,\n", CSV, labels="kind").details["column"] == 2


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *[(value, "not-finite") for value in ("NaN", "1e999")],
        *[(value, "bad-cell") for value in ("null", '"4"', "true")],
        *[(value, "inexact-integer") for value in ("9007199254740993", f"{10**400}")],
    ],
)
def test_bad_json_value_is_named(value: str, code: str) -> None:
    """The problem has the row and the column, from 1, and the first 50 characters of the value."""
    problem = refusal(f"[[1, 2], [3, {value}]]", JSON)
    assert problem.code == code
    assert (problem.details["row"], problem.details["column"]) == (2, 2)
    assert problem.details["value"] == {"NaN": "nan", "1e999": "inf"}.get(value, value)[:50]


@pytest.mark.parametrize("media", [CSV, JSON])
def test_bad_rows_are_counted_in_text(media: str) -> None:
    """The count covers all blocks; the first 20 rows are listed."""
    rows = [["1.5", "2"] for _ in range(4000)]
    for row in range(5, 4000, 5):
        rows[row][row % 2] = "null"
    lines = [",".join(row) for row in rows]
    problem = refusal("\n".join(lines) if media == CSV else f"[[{'],['.join(lines)}]]", media)
    assert (problem.details["row"], problem.details["rows_affected"]) == (6, 799)
    assert problem.details["rows"] == list(range(6, 106, 5))


@BOTH
@pytest.mark.parametrize(
    ("value", "code"), [(None, "missing-value"), (np.nan, "missing-value"), (np.inf, "not-finite")]
)
def test_missing_cells_are_refused_with_their_rows(
    write: Callable[[Any], bytes], media: str, value: Any, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem has the first cell, and the count and the first 20 rows of all blocks."""
    monkeypatch.setattr(arrow_table, "BLOCK_VALUES", 50)
    y = [value if row in range(9, 99, 3) else float(row) for row in range(100)]
    table = pa.table({"x": np.arange(100.0), "y": pa.array(y, pa.float64(), from_pandas=False)})
    problem = refusal(write(table), media)
    assert problem.code == code
    assert (problem.details["row"], problem.details["column"], problem.details["name"]) == (10, 2, "y")
    assert (problem.details["rows_affected"], problem.details["rows"]) == (30, list(range(10, 69, 3)))
    assert "in 30 of 100 rows" in problem.detail


@BOTH
def test_all_columns_that_are_no_features_are_named(write: Callable[[Any], bytes], media: str) -> None:
    """Texts and durations in one problem, with a remedy that leaves none of them."""
    problem = refusal(write(frame(kind=pa.array(KINDS), when=DURATIONS)), media)
    assert problem.detail == "The columns 'kind' (text, such as 'a'), 'when' (duration) need a role."
    assert problem.details["options"] == {"ignore": ["kind", "when"], "one_hot": ["kind"]}
    assert "with ?ignore=kind&ignore=when, or" in problem.to_dict()["remedy"]
    assert problem.to_dict()["remedy"].endswith("with ?one_hot=kind and ?ignore=when.")
    assert refusal(write(frame(when=DURATIONS)), media).details["options"] == {"ignore": ["when"]}
    assert "have to be numbers or dates" in refusal(write(frame(when=DURATIONS)), media, colors="when").detail


@pytest.mark.parametrize("kind", [NPZ, PARQUET, ARROW, "zstd", "lz4"])
def test_bombs_are_refused_before_they_are_stored(kind: str) -> None:
    """Zeros that compress a thousandfold are 413 by the size of the table; the problem has the limit."""
    zeros, limits = np.zeros(10**6), Limits(10**6, 10**4, 2**23)
    table = pa.table({"x": zeros, "y": zeros})
    bodies = {
        NPZ: lambda: npz(data=np.column_stack([zeros, zeros])),
        PARQUET: lambda: parquet_file(table, compression="zstd"),
        ARROW: lambda: stream(table, rows=10**6),
    }
    body = bodies[kind]() if kind in bodies else stream(table, rows=10**6, compression=kind)
    problem = refusal(body, kind if kind in bodies else ARROW, limits)
    assert (problem.code, problem.status, problem.details["allowed"]) == ("inflated-too-large", 413, 2**23)
    assert kind == ARROW or len(body) < 2**23 / 100
    narrow = npz(data=np.zeros((1000, 100), np.uint8))  # a stored byte becomes a float64
    assert refusal(narrow, NPZ, Limits(10**6, 10**4, 2**19)).details["bytes"] == 800_000


@pytest.mark.parametrize("role", ["labels", "features", "id", "ignore", "one_hot"])
def test_formats_without_columns_refuse_their_roles(role: str) -> None:
    """JSON, npy and npz have members in place of columns; npz has a member of labels."""
    bodies: dict[str, bytes | str] = {JSON: "[[1]]", NPY: npy(np.ones((2, 2))), NPZ: npz(data=np.ones((2, 2)))}
    for media, body in bodies.items():
        if (role, media) != ("labels", NPZ):
            options: dict[str, Any] = {role: "a" if role == "labels" else ["a"]}
            assert refusal(body, media, **options).code == f"{role}-not-here"


def test_other_types_are_415(monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem lists the supported ones; without pyarrow it names the extra."""
    kinds = dict.fromkeys(("", "text/html", "application/octet-stream", "text/csv; charset=ebcdic"), "")
    monkeypatch.setattr("service.uploads.registry.has_arrow", lambda: False)
    for media, remedy in (kinds | dict.fromkeys((ARROW, PARQUET), "pip install 'glle-server[arrow]'")).items():
        with pytest.raises(ProblemError) as caught:
            format_of(media)
        assert (caught.value.problem.status, caught.value.problem.code) == (415, "unsupported-media-type")
        assert remedy in caught.value.problem.remedy
