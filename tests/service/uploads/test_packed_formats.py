"""Valid and invalid npz, Arrow and Parquet bodies, and label and color columns in every format."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array, save_npz

from service.uploads import row_texts
from service.uploads.formats import arrow_table
from service.uploads.limits import Limits
from service.uploads.registry import format_of
from tests.service.uploads.bodies import (
    ARROW,
    JSON,
    LIMITS,
    NPY,
    NPZ,
    PARQUET,
    X,
    frame,
    header,
    npy,
    npz,
    packed,
    read,
    refused,
    stream,
)
from worker.base.problems import Problem, ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

HEADER = "{{'descr': '{}', 'fortran_order': False, 'shape': {}}}"
KINDS = [chr(ord("a") + i % 2) for i in range(6)]


def zipped(**members: bytes) -> bytes:
    """Return a zip file of these bytes by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name + ".npy", body)
    return buffer.getvalue()


BOTH = pytest.mark.parametrize(("write", "kind"), [(stream, ARROW), (packed, PARQUET)])


@pytest.mark.parametrize("name", ["data", "X", "points"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [NPZ, "application/x-npz"])
def test_npz_by_name_or_by_its_only_matrix(name: str, order: Any, kind: str) -> None:
    """The member `data`, `X` or the only matrix; with labels, color, coordinates and names."""
    body = npz(
        **{name: np.asarray(X, order=order)},
        labels=np.array(KINDS), color=np.arange(6), names=np.array(["a", "b", "c"]), coordinates=X[:, :2],
    )  # fmt: skip
    table = read(body, kind)
    np.testing.assert_array_equal(table.values, X)
    assert (table.names, table.labels is not None and table.labels.tolist()) == (["a", "b", "c"], KINDS)
    assert table.color is not None
    assert (table.color.dtype.name, table.color.tolist()) == ("float64", [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(table.coordinates, X[:, :2])


def test_npz_members_by_the_query() -> None:
    """?label= and ?color= name the members."""
    table = read(npz(X=X, y=np.arange(6), c=X[:, 0]), NPZ, label="y", color="c")
    assert table.labels is not None
    assert table.color is not None
    assert table.labels.tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(table.color, X[:, 0])


def test_a_downloaded_npz_is_the_same_data_set(client: httpx.Client) -> None:
    """A download with true coordinates, uploaded again, has the same id."""
    uploaded = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 30}).json()
    body = client.get(uploaded["links"]["data"], headers={"accept": NPZ}).content
    again = client.post("/v1/datasets", content=body, headers={"content-type": NPZ})
    assert (again.status_code, again.json()["id"]) == (200, uploaded["id"])


def encrypted() -> bytes:
    """Return a zip file with the flag of an encrypted member."""
    body = bytearray(npz(data=X))
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        body[body.index(mark) + offset] |= 1
    return bytes(body)


def damaged() -> bytes:
    """Return a zip file whose member does not match its checksum."""
    body = bytearray(npz(data=np.zeros((999, 9))))
    body[body.index(b"PK\1\2") + 16] ^= 0xFF
    return bytes(body)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(b"PK\x03\x04" + bytes(100), "malformed-npz", id="no directory"),
        pytest.param(npy(X), "malformed-npz", id="npy"),
        pytest.param(npz(data=X)[:-30], "malformed-npz", id="cut"),
        pytest.param(encrypted(), "malformed-npz", id="encrypted"),
        pytest.param(damaged(), "malformed-npz", id="damaged"),
        pytest.param(npz(), "no-data-member", id="empty"),
        pytest.param(npz(a=X, b=X), "no-data-member", id="two matrices"),
        pytest.param(npz(data=X, y=KINDS), "unknown-member", id="another member"),
        pytest.param(npz(data=X[0]), "invalid-shape", id="1-d"),
        pytest.param(npz(data=np.array([["a"]])), "unsupported-dtype", id="text"),
        pytest.param(zipped(data=npy(np.array([[{}]], object), allow_pickle=True)), "unsupported-dtype", id="pickle"),
        pytest.param(zipped(data=b"x" * 200), "malformed-npy", id="no array"),
        pytest.param(zipped(data=npy(X)[:-8]), "truncated-npy", id="short member"),
        pytest.param(zipped(data=npy(X) + b"x"), "malformed-npy", id="long member"),
        pytest.param(zipped(data=header(HEADER.format("<f8", (5001, 3)))), "too-many-points", id="n"),
        pytest.param(npz(data=X, labels=np.arange(5)), "invalid-member", id="labels too short"),
        pytest.param(
            zipped(data=npy(X), labels=header(HEADER.format("<U0", (6,)))), "invalid-member", id="labels of no width"
        ),
        pytest.param(npz(data=X, labels=X), "invalid-member", id="labels of two dimensions"),
        pytest.param(npz(data=X, labels=np.full(6, np.inf)), "not-finite", id="label infinite"),
        pytest.param(npz(data=X, labels=np.array(["x" * 1001] * 6)), "label-too-long", id="label long"),
        pytest.param(npz(data=X, color=KINDS), "invalid-member", id="colour of text"),
        pytest.param(npz(data=X, names=["a", "a", "b"]), "invalid-names", id="names twice"),
        pytest.param(npz(data=X, names=np.array([], str)), "invalid-member", id="no names"),
    ],
)  # fmt: skip
def test_bad_npz(body: bytes, code: str) -> None:
    """Each bad npz body is a problem with its code; nothing is unpickled."""
    assert refused(body, NPZ).code == code


def test_a_sparse_matrix_is_refused_as_such() -> None:
    """The file of scipy.sparse.save_npz, with the remedy in place of the name of a member."""
    buffer = io.BytesIO()
    save_npz(buffer, csr_array(X))
    problem = refused(buffer.getvalue(), NPZ)
    assert problem.code == "unknown-member"
    assert "sparse matrix" in problem.detail
    assert "TruncatedSVD" in str(problem.remedy)


def limited(body: bytes, kind: str, inflated: int) -> Problem:
    """Return the problem of a body beyond the limit of its unpacked size."""
    return refused(body, kind, Limits(10**6, 10**4, inflated))


@pytest.mark.parametrize("kind", [NPZ, PARQUET, ARROW])
def test_bombs_are_refused_before_they_are_stored(kind: str) -> None:
    """Zeros that compress a thousandfold are 413 by the size of the table; the problem has the limit."""
    zeros = np.zeros(10**6)
    table = pa.table({"x": zeros, "y": zeros})
    body = {
        NPZ: lambda: npz(data=np.column_stack([zeros, zeros])),
        PARQUET: lambda: packed(table, compression="zstd"),
        ARROW: lambda: stream(table, rows=10**6),
    }[kind]()
    problem = limited(body, kind, 2**23)
    assert (problem.code, problem.status, problem.details["allowed"]) == ("inflated-too-large", 413, 2**23)
    if kind != ARROW:
        assert len(body) < 2**23 / 100


def test_narrow_numbers_count_as_float64() -> None:
    """A stored byte becomes a float64, so the limit applies to eight times the size."""
    problem = limited(npz(data=np.zeros((1000, 100), np.uint8)), NPZ, 2**19)
    assert (problem.code, problem.details["bytes"]) == ("inflated-too-large", 800_000)


def test_many_long_labels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each label takes the space of the longest one."""
    monkeypatch.setattr(row_texts, "MAX_TEXTS", 30)
    body = "x,kind\n1,a\n2,bbbbbb\n3,c\n4,d\n5,e\n"
    assert refused(body.replace("bbbbbb", "bbbbbbb"), "text/csv", label="kind").details == {"allowed": 6}
    assert read(body, "text/csv", label="kind").labels is not None


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_arrow_is_bounded_by_its_values(compression: str) -> None:
    """Compressed batches are read; a table beyond the limit is refused."""
    np.testing.assert_array_equal(read(stream(frame(), compression=compression), ARROW).values, X)
    zeros = stream(pa.table({"x": np.zeros(10**5)}), rows=10**5, compression=compression)
    assert len(zeros) < 2**14
    assert limited(zeros, ARROW, 2**19).code == "inflated-too-large"


@BOTH
@pytest.mark.parametrize("rows", [1, 4, 2**20])
def test_columns_are_features(
    write: Callable[[Any], bytes], kind: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, names, labels and color are equal for all sizes of blocks."""
    monkeypatch.setattr(arrow_table, "BLOCK_VALUES", rows * 5)
    table = read(write(frame(kind=KINDS, c=np.arange(6))), kind, label="kind", color="c")
    np.testing.assert_array_equal(table.values, X)
    assert table.names == ["x", "y", "z"]
    assert table.labels is not None
    assert table.color is not None
    assert (table.labels.tolist(), table.color.tolist()) == (KINDS, [0, 1, 2, 3, 4, 5])


@BOTH
def test_integers_and_floats_of_every_width(write: Callable[[Any], bytes], kind: str) -> None:
    """All numeric types are accepted; float32 columns alone stay float32."""
    kinds = [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
    mixed = write(pa.table([pa.array(range(6)).cast(k) for k in kinds], list("abcde")))
    np.testing.assert_array_equal(read(mixed, kind).values, [[i] * 5 for i in range(6)], strict=False)
    single = write(pa.table([pa.array(X[:, 0].astype(np.float32))], ["x"]))
    read_back = [np.asarray(read(body, kind).values).dtype.name for body in (mixed, single)]
    assert read_back == ["float64", "float32"]


@BOTH
@pytest.mark.parametrize("labels", [pa.array(KINDS).dictionary_encode(), pa.array(KINDS, pa.large_string())])
def test_labels_of_every_kind_of_text(write: Callable[[Any], bytes], kind: str, labels: Any) -> None:
    """Categories and long strings become labels."""
    stored_labels = read(write(frame(kind=labels)), kind, label="kind").labels
    assert stored_labels is not None
    assert stored_labels.tolist() == KINDS


@BOTH
@pytest.mark.parametrize(("value", "code"), [(None, "missing-value"), (np.nan, "not-finite"), (np.inf, "not-finite")])
def test_missing_cells_are_refused_with_their_rows(
    write: Callable[[Any], bytes], kind: str, value: Any, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem has the first cell, and the count and the first 20 rows of all blocks."""
    monkeypatch.setattr(arrow_table, "BLOCK_VALUES", 50)
    x, y = list(range(100)), [float(i) for i in range(100)]
    for row in range(9, 99, 3):
        y[row] = value
    problem = refused(
        write(pa.table({"x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float64(), from_pandas=False)})), kind
    )
    assert problem.code == code
    assert (problem.details["row"], problem.details["column"], problem.details["name"]) == (10, 2, "y")
    assert (problem.details["rows_affected"], problem.details["rows"]) == (30, list(range(10, 69, 3)))
    assert "29 other rows" in problem.detail


@BOTH
def test_a_large_integer_is_refused(write: Callable[[Any], bytes], kind: str) -> None:
    """No value is rounded."""
    assert refused(write(pa.table({"x": [1, 2**53 + 1]})), kind).code == "inexact-integer"


@BOTH
@pytest.mark.parametrize(
    ("more", "label", "color", "code"),
    [
        ({"kind": KINDS}, None, None, "unsupported-column"),
        ({"kind": KINDS}, None, "kind", "unsupported-column"),
        ({"when": pa.array(range(6), pa.timestamp("s"))}, None, None, "unsupported-column"),
        ({"many": [[1.0]] * 6}, None, None, "unsupported-column"),
        ({"many": [[1.0]] * 6}, "many", None, "unsupported-column"),
        ({}, "kind", None, "no-such-column"),
        ({}, None, "kind", "no-such-column"),
        ({}, "x", "x", "same-column"),
    ],
)
def test_bad_columns(
    write: Callable[[Any], bytes], kind: str, more: Any, label: str | None, color: str | None, code: str
) -> None:
    """A non-numeric column and the index of a pandas frame are named with the remedy."""
    assert (
        refused(write(frame(**{n: pa.array(c) for n, c in more.items()})), kind, label=label, color=color).code == code
    )


@BOTH
def test_all_columns_that_are_no_features_are_named(write: Callable[[Any], bytes], kind: str) -> None:
    """Texts and dates in one problem, with a remedy that leaves none of them."""
    when = pa.array(range(6), pa.timestamp("ms"))
    problem = refused(write(frame(kind=pa.array(KINDS), when=when)), kind)
    assert problem.detail == "The columns 'kind' of type string, 'when' of type timestamp[ms] are no features."
    assert problem.details["options"] == {"ignore": ["kind", "when"], "one_hot": ["kind"]}
    assert "with ?ignore=kind&ignore=when, or" in problem.remedy
    assert problem.remedy.endswith("with ?one_hot=kind&ignore=when.")
    assert refused(write(frame(when=when)), kind).details["options"] == {"ignore": ["when"]}
    assert "cannot be the color, which has numbers" in refused(write(frame(when=when)), kind, color="when").detail


@BOTH
def test_pandas_files(write: Callable[[Any], bytes], kind: str) -> None:
    """A frame with an ordinary index is read, its categories as labels."""
    data = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=pd.Categorical(KINDS))
    table = read(write(pa.Table.from_pandas(data)), kind, label="kind")
    np.testing.assert_array_equal(table.values, X)
    assert table.labels is not None
    assert table.labels.tolist() == KINDS


@pytest.mark.parametrize(("kind", "code"), [(ARROW, "malformed-arrow"), (PARQUET, "malformed-parquet")])
@pytest.mark.parametrize("change", ["text", "cut", "npy"])
def test_invalid_tables(kind: str, code: str, change: str) -> None:
    """Text, another format and a truncated file are refused as such."""
    body = stream(frame()) if kind == ARROW else packed(frame())
    assert (
        refused({"text": b"1,2\n3,4\n" * 40, "cut": body[: len(body) // 2], "npy": npy(X)}[change], kind).code == code
    )


@BOTH
def test_limits_of_tables(write: Callable[[Any], bytes], kind: str) -> None:
    """Too many rows or columns, and none of either, are refused."""
    assert refused(write(pa.table({"x": np.zeros(5001)})), kind).code == "too-many-points"
    assert refused(write(pa.table({f"x{i}": [0.0] for i in range(21)})), kind).code == "too-many-features"
    assert refused(write(pa.table({"x": pa.array([], pa.float64())})), kind).code == "empty-data"
    assert refused(write(pa.table({"x": [1.0]})), kind, label="x").code == "empty-data"


def test_without_pyarrow_is_415_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy names the extra and the other formats."""
    monkeypatch.setattr("service.uploads.registry.has_arrow", lambda: False)
    for kind in (ARROW, PARQUET):
        with pytest.raises(ProblemError) as caught:
            format_of(kind)
        assert caught.value.problem.status == 415
        assert "pip install 'glle-server[arrow]'" in caught.value.problem.remedy


def test_colour_in_csv_and_json(client: httpx.Client) -> None:
    """A numeric column is stored as the color, and is part of the content."""
    body = "x,kind,c\n1,a,7\n2,b,8.5\n3,a,9\n"
    first = client.post("/v1/datasets?label=kind&color=c", content=body, headers={"content-type": "text/csv"}).json()
    assert (first["d"], first["names"], first["has_color"]) == (1, ["x"], True)
    payload = client.get(first["links"]["data"]).json()
    assert (payload["labels"], payload["color"]) == (["a", "b", "a"], [7, 8.5, 9])
    same = {name: payload[name] for name in ("data", "names", "labels", "color")}
    assert client.post("/v1/datasets", json=same).json()["id"] == first["id"]
    other = client.post("/v1/datasets", json={**same, "color": [7, 8, 9]}).json()
    assert other["id"] != first["id"]
    csv = client.get(first["links"]["data"], headers={"accept": "text/csv"}).text
    assert csv.splitlines()[:2] == ["x,label,color", "1.0,a,7.0"]


@pytest.mark.parametrize(
    ("body", "label", "color", "code"),
    [
        ("x,c\n1,a\n", None, "c", "bad-cell"),
        ("x,c\n1,\n", None, "c", "bad-cell"),
        ("x,c\n1,nan\n", None, "c", "not-finite"),
        ("x,c\n1,2\n", None, "d", "no-such-column"),
        ("x,c\n1,2\n", "c", "c", "same-column"),
        ("x\n1\n", None, "x", "empty-data"),
    ],
)
def test_bad_colour_in_csv(body: str, label: str | None, color: str | None, code: str) -> None:
    """A color is a number in every row."""
    assert refused(body, "text/csv", label=label, color=color).code == code


@pytest.mark.parametrize("color", ["[1]", '["a", "b"]', "[1, null]", "[1, NaN]", "3"])
def test_bad_colour_in_json(color: str) -> None:
    """A color is a list of numbers, one for each row."""
    assert refused(f'{{"data": [[1], [2]], "color": {color}}}', "application/json").code == "malformed-json"


@pytest.mark.parametrize("kind", ["text/csv", "application/json"])
def test_bad_rows_are_counted_in_text(kind: str) -> None:
    """The count covers all blocks; the first 20 rows are listed."""
    rows = [["1.5", "2"] for _ in range(4000)]
    for row in range(5, 4000, 5):
        rows[row][row % 2] = "null"
    lines = [",".join(row) for row in rows]
    problem = refused("\n".join(lines) if kind == "text/csv" else f"[[{'],['.join(lines)}]]", kind)
    assert (problem.details["row"], problem.details["rows_affected"]) == (6, 799)
    assert problem.details["rows"] == list(range(6, 106, 5))


def test_column_numbers_are_those_of_the_file() -> None:
    """A label column before the bad cell counts."""
    assert refused("kind,x\na,1\nb,\n", "text/csv", label="kind").details["column"] == 2


def test_csv_header_by_the_media_type() -> None:
    """`header=present` makes names of numbers, `header=absent` makes data of the first row."""
    assert read("1,2\n3,4\n", "text/csv; header=present").names == ["1", "2"]
    np.testing.assert_array_equal(read("1,2\n3,4\n", "text/csv; header=absent").values, [[1, 2], [3, 4]])
    assert refused("a,b\n1,2\n", "text/csv; header=absent").code == "bad-cell"


def test_a_missing_label_is_the_empty_label_in_every_format() -> None:
    """An empty cell, null and NaN, with the same notice."""
    labels = ["u", None, "v", None]
    table = pa.table({"a": [1.0, 2.0, 3.0, 4.0], "kind": labels})
    cells = "".join(f"{row},{label or ''}\n" for row, label in enumerate(labels, 1))
    bodies = {
        "text/csv": f"a,kind\n{cells}".encode(),
        "application/json": json.dumps({"data": [[1], [2], [3], [4]], "names": ["a"], "labels": labels}).encode(),
        "application/zip": npz(data=np.arange(1.0, 5.0)[:, None], kind=np.array(["u", "", "v", ""])),
        PARQUET: packed(table),
        ARROW: stream(table),
    }
    for kind, body in bodies.items():
        found = read(body, kind, label=None if kind == "application/json" else "kind")
        assert found.labels is not None
        assert found.labels.tolist() == ["u", "", "v", ""], kind
        assert found.source["notices"] == ["The label is missing in 2 of 4 rows; these rows share the empty label."], (
            kind
        )


@pytest.mark.parametrize("role", ["label", "features", "id", "ignore", "one_hot"])
def test_formats_without_columns_refuse_their_roles(role: str) -> None:
    """JSON, npy and npz have members in place of columns; npz has a member of labels."""
    bodies = {JSON: b"[[1]]", NPY: npy(np.ones((2, 2))), NPZ: npz(data=np.ones((2, 2)))}
    for kind, body in bodies.items():
        if (role, kind) != ("label", NPZ):
            columns = "a" if role == "label" else ["a"]
            assert refused(body, kind, LIMITS, **{role: columns}).code == f"{role}-not-here"
