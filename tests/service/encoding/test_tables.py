"""Arrays and tables in responses, and slices of points and draws."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi import Request

from service.encoding import arrays, media_types
from service.encoding.arrays import CSV, JSON, NPY, NPZ, ResultTable, Stack, matrix_columns
from service.encoding.media_types import ARROW
from service.encoding.result import MAX_LISTED, ArraysResult, Selection, negotiate
from tests.service.conftest import check_problem, csv_rows, upload
from tests.service.routes.posteriors.conftest import result_of
from worker.analyses.posterior_analyses import ReconstructionsSpec
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

X = np.random.default_rng(3).normal(size=(7, 3)) * 10.0 ** np.array([-150, 0, 150])


def get(client: httpx.Client, path: str, media: str) -> httpx.Response:
    """Return a response of this media type."""
    answer = client.get(path, headers={"accept": media})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == media
    return answer


def arrow_of(answer: httpx.Response) -> Any:
    """Return the table of an Arrow response."""
    return pa.ipc.open_stream(answer.content).read_all()


def npy_of(client: httpx.Client, path: str) -> np.ndarray[Any, Any]:
    """Return the array of a path."""
    loaded: np.ndarray[Any, Any] = np.load(io.BytesIO(get(client, path, "application/x-npy").content))
    return loaded


@pytest.fixture
def result(client: httpx.Client, stores: Stores, drawn_posterior: str) -> str:
    """The path of the result of a job with 4 draws at 2 scales."""
    return result_of(stores, client.post(f"{drawn_posterior}/draws", json={"n_draws": 4, "scales": [1, 2]}))


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_blocks_do_not_show(dtype: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is written in blocks is the same table."""
    monkeypatch.setattr(arrays, "_CSV_VALUES", 6)
    monkeypatch.setattr(arrays, "_ARROW_VALUES", 8)
    values = np.random.default_rng(0).normal(size=(7, 3))
    table = ResultTable.from_columns({**matrix_columns(values, "y"), "label": np.array(list("abcdefg"))}, dtype)
    expected = values.astype(dtype or float)
    lines = list(csv.reader(io.StringIO("".join(arrays.csv_pieces(table)), newline="")))
    assert lines[0] == ["y1", "y2", "y3", "label"]
    np.testing.assert_array_equal(np.array([line[:3] for line in lines[1:]], float), expected)
    read = pa.ipc.open_stream(b"".join(arrays.arrow_pieces(table))).read_all()
    np.testing.assert_array_equal(np.column_stack([read[f"y{i}"] for i in (1, 2, 3)]), expected)
    assert read["label"].to_pylist() == list("abcdefg")


def test_label_columns_get_unused_names(client: httpx.Client) -> None:
    """A feature may be called label without a clash; what was sent is the same data set."""
    body = 'label,"y, z",kind,c\n1.5,2,a,7\n3,4,b,8\n'
    headers = {"content-type": "text/csv"}
    first = client.post("/v1/datasets?labels=kind&colors=c", content=body, headers=headers).json()
    sent = get(client, first["links"]["data"], CSV)
    assert sent.text.splitlines()[:2] == ['label,"y, z",label_,color', "1.5,2.0,a,7.0"]
    again = client.post("/v1/datasets?labels=label_&colors=color", content=sent.content, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])


def test_arrow_of_a_data_set_is_its_values(client: httpx.Client) -> None:
    """Columns are x1 to xd without names; float32 is of the values, while labels and colors keep every bit."""
    table = arrow_of(get(client, f"/v1/datasets/{upload(client, X)}/data", ARROW))
    assert table.column_names == ["x1", "x2", "x3"]
    np.testing.assert_array_equal(np.column_stack(table.columns), X)
    body = {"data": [[1.5], [2.5]], "labels": [16777217, 1], "colors": [0.1, 0.2]}
    path = client.post("/v1/datasets", json=body).json()["links"]["data"] + "?dtype=float32"
    table = arrow_of(get(client, path, ARROW))
    assert [str(column.type) for column in table.columns] == ["float", "double", "double"]
    assert table.to_pydict() == {"x1": [1.5, 2.5], "label": body["labels"], "color": body["colors"]}


def test_one_draw_as_a_table(client: httpx.Client, drawn_posterior: str) -> None:
    """A row per point, columns y1 to yp, with the bits of npy."""
    expected = npy_of(client, f"{drawn_posterior}/draws/1")
    outcome = csv_rows(get(client, f"{drawn_posterior}/draws/1", CSV))
    np.testing.assert_array_equal([[float(row["y1"]), float(row["y2"])] for row in outcome], expected)
    table = arrow_of(get(client, f"{drawn_posterior}/draws/1?points=5:9", ARROW))
    np.testing.assert_array_equal(np.column_stack([table["y1"], table["y2"]]), expected[5:9])


def test_draws_of_a_job_as_a_table(client: httpx.Client, result: str) -> None:
    """A row per point of each draw, with the draw's index."""
    whole = npy_of(client, result)
    for query in ("", "?points=3:6&draws=1:3", "?points=-1,0&draws=2"):
        table = arrow_of(get(client, result + query, ARROW))
        assert table.column_names == ["draw", "scale", "point", "y1", "y2"]
        outcome = csv_rows(get(client, result + query, CSV))
        assert len(outcome) == len(table) == npy_of(client, result + query)[..., 0].size
        for row, of_csv in zip(table.to_pylist(), outcome, strict=True):
            expected = whole[[1.0, 2.0].index(row["scale"]), row["draw"], row["point"]]
            assert [row["y1"], row["y2"]] == expected.tolist()
            assert {name: float(value) for name, value in of_csv.items()} == row


def test_slices_of_a_job_in_every_form(client: httpx.Client, result: str) -> None:
    """npy, npz and JSON have the selected draws and points."""
    whole = npy_of(client, result)
    query = "?points=10:-2&draws=3,1"
    expected = whole[:, [3, 1], 10:-2]
    np.testing.assert_array_equal(npy_of(client, result + query), expected)
    with np.load(io.BytesIO(get(client, result + query, "application/zip").content)) as npz:
        np.testing.assert_array_equal(npz["embeddings"], expected)
        assert npz["indices"].tolist() == [3, 1]
        assert npz["eigenvalues"].shape == (2, 2, 2)
    body = get(client, result + query, JSON).json()
    assert body["data"] == expected.tolist()
    assert [draw["index"] for draw in body["draws"]] == [3, 1, 3, 1]


def test_summary_and_generated_data_as_tables(client: httpx.Client, stores: Stores, drawn_posterior: str) -> None:
    """A summary has a row per point; generated data a row per point of each data set."""
    result_of(stores, client.get(f"{drawn_posterior}/summary?n_draws=4&scale=1&wait=0"))
    path = f"{drawn_posterior}/summary?n_draws=4&scale=1&points=20:23"
    arrays = get(client, path, JSON).json()["arrays"]
    table = arrow_of(get(client, path, ARROW)).to_pydict()
    assert table["point"] == [20, 21, 22]
    assert table["spread"] == arrays["spread"]["data"]
    assert table["covariance_1_2"] == [matrix[0][1] for matrix in arrays["covariance"]["data"]]
    assert get(client, path, CSV).text.splitlines()[0].startswith("point,consensus_1,consensus_2,covariance_1_1")
    path = result_of(stores, client.post(f"{drawn_posterior}/reconstructions", json={"n_draws": 3, "first": 1}))
    data = npy_of(client, path)
    response = arrow_of(get(client, path + "?draws=1:3&points=0,149", ARROW)).to_pylist()
    assert [(row["draw"], row["point"]) for row in response] == [(2, 0), (2, 149), (3, 0), (3, 149)]
    assert [response[1][f"x{i}"] for i in (1, 2, 3)] == data[1, 149].tolist()
    assert ReconstructionsSpec.main == "data"
    np.testing.assert_array_equal(npy_of(client, path + "?draws=1:3&points=0,149"), data[1:3, [0, 149]])


def test_a_slice_of_a_data_set_has_its_labels_and_coordinates(client: httpx.Client) -> None:
    """Labels and coordinates belong to the selected points."""
    response = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 30}).json()["links"]["data"]
    whole, selected = get(client, response, JSON).json(), get(client, response + "?points=4:7", JSON).json()
    assert (selected["shape"], selected["data"]) == ([3, 3], whole["data"][4:7])
    assert selected["coordinates"] == whole["coordinates"][4:7]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, range(5)),
        ("0:5", range(5)),
        (":", range(5)),
        ("1:3", range(1, 3)),
        ("-2:", range(3, 5)),
        ("4,0,-1", [4, 0, 4]),
    ],
)
def test_slices_are_those_of_python(text: str | None, expected: Any) -> None:
    """Slices are half open and may be negative, lists keep their order; for a part, the ETag gets a tag."""
    chosen = Selection.from_query(text, 5, "points")
    assert list(chosen.positions) == list(expected)
    values = np.arange(20).reshape(2, 5, 2)
    np.testing.assert_array_equal(chosen.select(values, axis=1), values[:, list(expected)])
    assert (chosen.tag == "") == (expected == range(5))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0:6", "slice-out-of-range"), ("-6:", "slice-out-of-range"), ("5", "slice-out-of-range"),
        ("2:2", "invalid-slice"), ("3:1", "invalid-slice"), ("1:4:2", "invalid-slice"), ("", "invalid-slice"),
        ("a", "invalid-slice"), ("1,,2", "invalid-slice"), (",".join(["0"] * (MAX_LISTED + 1)), "invalid-slice"),
    ],
)  # fmt: skip
def test_slices_out_of_range_are_refused(text: str, code: str) -> None:
    """The problem has the allowed range."""
    with pytest.raises(ProblemError) as caught:
        Selection.from_query(text, 5, "points")
    assert (caught.value.problem.code, caught.value.problem.status) == (code, 422)
    if code == "slice-out-of-range":
        assert caught.value.problem.details["size"] == 5


def test_slices_of_missing_axes_are_refused(client: httpx.Client, result: str, drawn_posterior: str) -> None:
    """A slice beyond the points or the draws of a result is refused over HTTP, too."""
    for path in (f"{result}?points=0:151", f"{result}?draws=4", f"{drawn_posterior}/draws/0?points=150"):
        check_problem(client.get(path), 422, "slice-out-of-range")


def test_arrow_without_pyarrow_is_406_with_the_remedy(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow is not offered, and 406 names the extra; CSV works."""
    monkeypatch.setattr("service.encoding.result.has_arrow", lambda: False)
    path = f"/v1/datasets/{upload(client, X)}/data"
    answer = client.get(path, headers={"accept": ARROW})
    assert (answer.status_code, ARROW in answer.json()["details"]["offered"]) == (406, False)
    assert media_types.ARROW_REMEDY in answer.json()["remedy"]
    assert get(client, path, CSV).text.startswith("x1,x2,x3")
    answer = client.get(path, headers={"accept": f"{ARROW}, application/json;q=0.5"})
    assert answer.headers["content-type"] == JSON


@pytest.mark.parametrize("axes", [0, 1, 2])
@pytest.mark.parametrize("shape", [(2, 3, 7, 2), (1, 1, 1, 1), (2, 1, 5, 3), (3, 2, 0, 2)])
def test_every_representation_is_the_array(axes: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """npy, npz and JSON of a stack equal those of the array, for any size of pieces."""
    monkeypatch.setattr(arrays, "_PIECE_BYTES", 40)
    monkeypatch.setattr(arrays, "_JSON_VALUES", 5)
    whole = np.random.default_rng(0).normal(size=shape[-axes - 2 :])
    expected = whole.reshape(shape[2 - axes :])
    lead, trail = expected.shape[:axes], expected.shape[axes:]
    stack = Stack(lead, trail, expected.dtype, list(expected.reshape(math.prod(lead), *trail)))
    arrays.check_float32(stack)  # at once, whatever its values
    buffer = io.BytesIO()
    np.save(buffer, expected)
    assert arrays.npy_header(stack.dtype, stack.shape) + b"".join(stack.pieces()) == buffer.getvalue()
    assert json.loads(b"".join(stack.json())) == expected.tolist()
    packed = b"".join(arrays.npz_pieces({"x": stack, "y": Stack.from_array(np.arange(3))}))
    with np.load(io.BytesIO(packed)) as loaded:
        np.testing.assert_array_equal(loaded["x"], expected)
        np.testing.assert_array_equal(loaded["y"], np.arange(3))


def test_float32_is_rounded_once() -> None:
    """float32 of float64 is the nearest float32; integers stay. Values beyond float32 are refused, in any block."""
    values = np.array([[0.1, 1 / 3]])
    stack = Stack.from_array(values, "float32")
    assert b"".join(stack.pieces()) == values.astype(np.float32).tobytes()
    assert np.array(json.loads(b"".join(stack.json())), np.float32).tobytes() == values.astype(np.float32).tobytes()
    assert Stack.from_array(np.arange(3), "float32").dtype == np.int64
    largest = float(np.finfo(np.float32).max)
    values = np.full((2**21 + 1, 2), largest)  # of two blocks
    arrays.check_float32(values)
    for beyond in (1.001 * largest, -1.001 * largest):
        values[-1, 1] = beyond
        with pytest.raises(ProblemError, match="beyond the range of float32"):
            arrays.check_float32(values)
        arrays.check_float32(Stack.from_array(values))  # its values are not in memory, and are not checked


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_json_of_nan_is_an_error_never_null(dtype: str) -> None:
    """A non-finite value aborts the response, in any block."""
    for value in (np.nan, np.inf, -np.inf):
        values = np.zeros((arrays._JSON_VALUES + 1, 1), dtype)
        values[-1] = value
        with pytest.raises(ValueError, match="JSON compliant"):
            b"".join(Stack.from_array(values).json())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_json_reads_back_to_the_same_bits(dtype: str) -> None:
    """Random bit patterns, subnormal numbers and signed zeros come back as the same doubles."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**64, 10_000, np.uint64).view(dtype)
    edges = [0.0, -0.0, 5e-324, np.finfo(dtype).max, np.finfo(dtype).tiny, 1e-7, 1e16, 1e22, 0.1]
    with np.errstate(under="ignore"):
        values = np.concatenate([bits[np.isfinite(bits)], np.array(edges).astype(dtype)])
    read = np.array(json.loads(b"".join(Stack.from_array(values).json())))
    assert read.tobytes() == values.astype(np.float64).tobytes()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(-3, 4),
        np.array([[2**64 - 1, 0]], np.uint64),
        np.array([True, False]),
        np.array(["ü", 'quote"', "\ud800"]),
        np.arange(12.0).reshape(6, 2)[::-2, ::-1],
    ],
    ids=["integers", "unsigned", "booleans", "texts", "views"],
)
def test_json_of_other_arrays_is_their_list(values: np.ndarray[Any, Any]) -> None:
    """Integers, booleans, texts and views that are not contiguous become lists."""
    assert json.loads(b"".join(Stack.from_array(values).json())) == values.tolist()


def test_json_is_sent_in_few_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small response is one piece; pieces of a large one stay near their size."""
    monkeypatch.setattr(arrays, "_PIECE_BYTES", 2**17)
    monkeypatch.setattr(arrays, "_JSON_VALUES", 2**11)

    async def pieces(values: np.ndarray[Any, Any], *members: tuple[str, Any]) -> list[bytes]:
        response = ArraysResult(arrays={"x": values}, main="x", members=members).response(JSON, "")
        return [bytes(piece) async for piece in response.body_iterator]  # type: ignore[arg-type] # bytes alone

    large = np.random.default_rng(2).normal(size=(25_000, 2))
    (small,) = asyncio.run(pieces(large[:500], ("color", large[:500, 0]), ("names", ["a", None])))
    assert json.loads(small)["color"] == large[:500, 0].tolist()
    assert json.loads(small)["names"] == ["a", None]
    parts = asyncio.run(pieces(large))
    assert json.loads(b"".join(parts))["data"] == large.tolist()
    assert len(parts) > 5
    assert max(map(len, parts)) < 1.5 * arrays._PIECE_BYTES


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, JSON),
        ("*/*", JSON),
        ("application/x-npy", NPY),
        ("application/zip, application/json;q=0.5", NPZ),
        ("application/json;q=0.5, application/x-npy;q=0.9", NPY),
        ("text/html, application/*;q=0.1", JSON),
        ("APPLICATION/X-NPY", NPY),
        ("application/json;q=oops, application/x-npy", NPY),
        *[(accept, None) for accept in ("text/html", "application/json;q=0", "", "image/*")],
    ],
)
def test_negotiation(accept: str | None, expected: str | None) -> None:
    """The best accepted type wins, the first offered type breaks ties; 406 lists the offered types."""
    headers = [] if accept is None else [(b"accept", accept.encode())]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers})
    if expected is None:
        with pytest.raises(ProblemError) as caught:
            negotiate(request, (JSON, NPY, NPZ))
        assert (caught.value.problem.status, caught.value.problem.details) == (406, {"offered": [JSON, NPY, NPZ]})
    else:
        assert negotiate(request, (JSON, NPY, NPZ)) == expected


QUOTED = {"accept": "text/csv; formulas=quoted"}
FORMULAS = ["=1+1", "+a", "-b", "@c", "plain", "a=b"]


def test_texts_that_a_spreadsheet_would_run_are_quoted_on_request(client: httpx.Client) -> None:
    """With formulas=quoted, an apostrophe precedes ids, labels and names that begin like a formula, and no number."""
    body = {
        "data": [[-1.5, float(row)] for row in range(6)],
        "names": ["=x", "y"],
        "labels": FORMULAS,
        "ids": [f"{text}{row}" for row, text in enumerate(FORMULAS)],
    }
    path = client.post("/v1/datasets", json=body).raise_for_status().json()["links"]["data"]
    plain, quoted = client.get(path, headers={"accept": "text/csv"}), client.get(path, headers=QUOTED)
    rows, safe = (list(csv.reader(answer.text.splitlines())) for answer in (plain, quoted))
    assert rows[0] == ["id", "=x", "y", "label"]
    assert [row[3] for row in rows[1:]] == FORMULAS
    assert plain.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert quoted.headers["content-type"] == "text/csv; charset=utf-8; header=present; formulas=quoted"
    assert plain.headers["etag"] != quoted.headers["etag"]
    for row, other in zip(rows, safe, strict=True):
        for cell, shown in zip(row, other, strict=True):
            is_number = cell.replace(".", "").removeprefix("-").isdigit()
            assert shown == ("'" if cell[0] in "=+-@" and not is_number else "") + cell
