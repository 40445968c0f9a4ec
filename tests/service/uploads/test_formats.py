"""Valid uploaded bodies of each format: values, names, labels and color."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import coo_array, save_npz

from service.uploads.formats import arrow_table
from service.uploads.formats.dialect import Declared, sniff
from tests.service.conftest import check_problem
from tests.service.uploads.bodies import (
    BOTH,
    CSV,
    JSON,
    KINDS,
    NPY,
    NPZ,
    X,
    frame,
    messages,
    npy,
    npz,
    read,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<f2", "<i4", ">i8", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_every_real_dtype_and_order(dtype: str, order: Any) -> None:
    """Values are equal for every byte order, memory order and version of the format."""
    values = np.arange(12).reshape(4, 3).astype(dtype, order=order)
    np.testing.assert_array_equal(read(npy(values), NPY).values, values)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, version=(2, 0))
    np.testing.assert_array_equal(read(buffer.getvalue(), NPY).values, values)


def test_csv_with_and_without_header() -> None:
    """A header has the names; without one the first row is data; BOM, CRLF and blank lines are accepted."""
    plain = read("1,2\n3,4\n", CSV)
    assert (plain.names, plain.values.tolist()) == (None, [[1, 2], [3, 4]])
    headed = read('\ufeffa,"b ""x"", y"\r\n\r\n 1 ,2e0\r\n-3,+4\r\n', "text/csv; charset=utf-8")
    assert (headed.names, headed.values.tolist()) == (["a", 'b "x", y'], [[1, 2], [-3, 4]])
    assert read("1,2\n3,4\n", "text/csv; header=present").names == ["1", "2"]
    assert read("1,2\n3,4\n", "text/csv; header=absent").values.tolist() == [[1, 2], [3, 4]]


def test_csv_round_trips_every_bit() -> None:
    """The output of repr is read as the same float64, over several blocks."""
    values = np.random.default_rng(1).normal(size=(3000, 2)) * 10.0 ** np.arange(-150, 150, 150)
    body = "\n".join(",".join(repr(float(v)) for v in row) for row in values)
    np.testing.assert_array_equal(read(body, CSV).values, values)


def test_csv_label_column() -> None:
    """The named or numbered column becomes the labels: strings, or numbers if all of them are numeric."""
    for label in ("kind", "2"):
        table = read("x,y,kind\n1,2,b\n3,4,a\n", CSV, labels=label)
        assert (texts(table), table.values.tolist()) == ((["x", "y"], ["b", "a"], None, None), [[1, 2], [3, 4]])
    table = read("7,1,2\n8,3,4\n", CSV, labels="0")
    assert (texts(table), table.values.tolist()) == ((None, [7, 8], None, None), [[1, 2], [3, 4]])
    table = read("1,7;8\n2,9;5\n", CSV, labels="1")  # semicolons and decimal commas are not tried
    assert (texts(table)[1], table.values.tolist()) == (["7;8", "9;5"], [[1], [2]])


def test_json_is_a_matrix() -> None:
    """A JSON body may be a list of rows; an object is tested with labels and colors."""
    assert read("[[1, 2.5], [3, 4]]", JSON).values.tolist() == [[1, 2.5], [3, 4]]


@pytest.mark.parametrize("name", ["data", "X", "points"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("media", [NPZ, "application/x-npz"])
def test_npz_by_name_or_by_its_only_matrix(name: str, order: Any, media: str) -> None:
    """The data of an npz file are its member `data` or `X`, or its only matrix; further members have roles."""
    members = {"labels": np.array(KINDS), "colors": np.arange(6), "names": np.array(["a", "b", "c"])}
    table = read(npz(**{name: np.asarray(X, order=order)}, **members, coordinates=X[:, :2]), media)
    np.testing.assert_array_equal(table.values, X)
    assert texts(table) == (["a", "b", "c"], KINDS, [0, 1, 2, 3, 4, 5], None)
    np.testing.assert_array_equal(table.coordinates, X[:, :2])
    table = read(npz(X=X, y=np.arange(6), c=X[:, 0]), NPZ, labels="y", colors="c")
    assert texts(table) == (None, [0, 1, 2, 3, 4, 5], X[:, 0].tolist(), None)


def test_a_downloaded_npz_is_the_same_data_set(client: httpx.Client) -> None:
    """A download with true coordinates, uploaded again, has the same id."""
    uploaded = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 30}).json()
    body = client.get(uploaded["links"]["data"], headers={"accept": NPZ}).content
    again = client.post("/v1/datasets", content=body, headers={"content-type": NPZ})
    assert (again.status_code, again.json()["id"]) == (200, uploaded["id"])
    buffer = io.BytesIO()
    save_npz(buffer, coo_array(np.array([[0, np.nan], [1, 0]])).tocsr())
    nan = client.post("/v1/datasets", content=buffer.getvalue(), headers={"content-type": NPZ})
    check_problem(nan, 422, "not-finite")


@pytest.mark.parametrize("layout", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_a_sparse_matrix_is_stored_dense(layout: str, dtype: Any) -> None:
    """A file of scipy.sparse.save_npz is stored as a dense matrix, with sums of repeated entries."""
    rows, columns, data = [0, 2, 2, 0], [1, 0, 0, 2], np.array([1, 2, 3, 4], dtype)
    buffer = io.BytesIO()
    save_npz(buffer, coo_array((data, (rows, columns)), shape=(4, 3)).asformat(layout))
    table = read(buffer.getvalue(), NPZ)
    np.testing.assert_array_equal(table.values, [[0, 1, 4], [0, 0, 0], [5, 0, 0], [0, 0, 0]])
    assert np.result_type(table.values) == (np.float32 if dtype == np.float32 else np.float64)


@BOTH
@pytest.mark.parametrize("rows", [1, 4, 2**20])
def test_columns_are_features(
    write: Callable[..., bytes], media: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, names, labels of every kind of text and color are equal for all sizes of blocks."""
    monkeypatch.setattr(arrow_table, "BLOCK_VALUES", rows * 5)
    for labels in (KINDS, pa.array(KINDS).dictionary_encode(), pa.array(KINDS, pa.large_string())):
        body = write(frame(kind=labels, c=np.arange(6)), compression="zstd")
        table = read(body, media, labels="kind", colors="c")
        np.testing.assert_array_equal(table.values, X)
        assert texts(table) == (["x", "y", "z"], KINDS, [0, 1, 2, 3, 4, 5], None)


@BOTH
def test_integers_and_floats_of_every_width(write: Callable[[Any], bytes], media: str) -> None:
    """All numeric types are accepted; float32 columns alone stay float32."""
    kinds = [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
    mixed = write(pa.table([pa.array(range(6)).cast(k) for k in kinds], list("abcde")))
    np.testing.assert_array_equal(read(mixed, media).values, [[i] * 5 for i in range(6)], strict=False)
    single = write(pa.table([pa.array(X[:, 0].astype(np.float32))], ["x"]))
    assert [read(body, media).values.dtype.name for body in (mixed, single)] == ["float64", "float32"]


def test_color_in_csv_and_json(client: httpx.Client) -> None:
    """A numeric column is stored as the color, and is part of the content."""
    body = "x,kind,c\n1,a,7\n2,b,8.5\n3,a,9\n"
    first = client.post("/v1/datasets?labels=kind&colors=c", content=body, headers={"content-type": CSV}).json()
    assert (first["n_features"], first["names"], first["has_colors"]) == (1, ["x"], True)
    payload = client.get(first["links"]["data"]).json()
    assert (payload["labels"], payload["colors"]) == (["a", "b", "a"], [7, 8.5, 9])
    same = {name: payload[name] for name in ("data", "names", "labels", "colors")}
    assert client.post("/v1/datasets", json=same).json()["id"] == first["id"]
    assert client.post("/v1/datasets", json={**same, "colors": [7, 8, 9]}).json()["id"] != first["id"]


def test_a_missing_label_is_the_empty_label() -> None:
    """A missing label (null in JSON, an empty text in npz) is empty, with a notice."""
    labels = ["u", None, "v", None]
    as_json = json.dumps({"data": [[1], [2], [3], [4]], "names": ["a"], "labels": labels})
    as_npz = npz(data=np.arange(1.0, 5.0)[:, None], kind=np.array(["u", "", "v", ""]))
    notice = "The label is missing in 2 of 4 rows; these rows share the empty label."
    for table in (read(as_json, JSON), read(as_npz, NPZ, labels="kind")):
        assert (texts(table)[1], messages(table)) == (["u", "", "v", ""], [notice])


@pytest.mark.parametrize(
    ("head", "delimiter", "decimal"),
    [(b"1;2;3\n", ";", "."), (b"1,5;2\n", ";", ","), (b"1\t2\t3\n", "\t", "."), (b"a,b;c\n1,5;2\n", ";", ",")],
)
def test_one_row_shows_its_delimiter(head: bytes, delimiter: str, decimal: str) -> None:
    """The only row of numbers, below a header or without one, is split as several rows would be."""
    found = sniff(head, Declared.from_parameters({}), is_whole=True, labels=0)
    assert (found.delimiter, found.decimal) == (delimiter, decimal)


def test_uneven_rows_are_split_by_commas_before_blanks() -> None:
    """Of a file with a row too long, the rows are counted by its commas, although its texts have numbers and blanks."""
    head = b"city name,notes\nParis,3 4 5 6\nRome,1,2\n"
    assert sniff(head, Declared.from_parameters({}), is_whole=True, labels=0).delimiter == ","
