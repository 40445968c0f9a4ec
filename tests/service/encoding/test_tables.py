"""Tables in responses, CSV and Arrow, and slices of points and draws."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from service.encoding import arrow, tables
from service.encoding.arrays import CSV, JSON
from service.encoding.arrow import ARROW
from service.encoding.selection import MAX_LISTED, Selection
from service.encoding.tables import ResultTable, matrix_columns
from tests.service.conftest import upload
from tests.service.encoding.csv_rows import rows
from worker.analyses.posterior_analyses import ReconstructionsSpec
from worker.base.problems import ProblemError
from worker.execution import tasks
from worker.records.draws import DrawsSpec

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
def result(client: httpx.Client, stores: Stores, drawn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of the result of a job with 4 draws at 2 scales."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    answer = client.post(f"{drawn}/draws", json={"count": 4, "scales": [1, 2]})
    job = stores.jobs.fetch(answer.json()["id"])
    for shard in range(DrawsSpec.from_dict(job.spec).shards):
        tasks.draw(job.id, job.round, shard)
    return f"/v1/jobs/{job.id}/result"


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_blocks_do_not_show(dtype: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a table join to the table."""
    monkeypatch.setattr(tables, "_CSV_VALUES", 6)
    monkeypatch.setattr(tables, "_ARROW_VALUES", 8)
    values = np.random.default_rng(0).normal(size=(7, 3))
    table = ResultTable.of({**matrix_columns(values, "y"), "label": np.array(list("abcdefg"))}, dtype)
    expected = values.astype(dtype or float)
    lines = list(csv.reader(io.StringIO("".join(tables._csv(table)), newline="")))
    assert lines[0] == ["y1", "y2", "y3", "label"]
    np.testing.assert_array_equal(np.array([line[:3] for line in lines[1:]], float), expected)
    read = pa.ipc.open_stream(b"".join(tables._arrow(table))).read_all()
    np.testing.assert_array_equal(np.column_stack([read[f"y{i}"] for i in (1, 2, 3)]), expected)
    assert read["label"].to_pylist() == list("abcdefg")


def test_csv_of_a_data_set_is_the_same_data_set(client: httpx.Client) -> None:
    """A data set exported as CSV with its label has the same content."""
    body = 'x,"y, z",label\n' + "".join(f"{float(a)!r},{float(b)!r},k{i % 2}\n" for i, (a, b, _) in enumerate(X))
    headers = {"content-type": "text/csv"}
    first = client.post("/v1/datasets?label=label", content=body, headers=headers).json()
    sent = get(client, first["links"]["data"], CSV)
    assert sent.text.splitlines()[0] == 'x,"y, z",label'
    again = client.post("/v1/datasets?label=label", content=sent.content, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])


def test_label_columns_get_unused_names(client: httpx.Client) -> None:
    """A feature may be called label without a clash."""
    body = "label,label_,kind,c\n1.5,2,a,7\n3,4,b,8\n"
    response = client.post("/v1/datasets?label=kind&color=c", content=body, headers={"content-type": "text/csv"}).json()
    lines = get(client, response["links"]["data"], CSV).text.splitlines()
    assert lines[:2] == ["label,label_,label__,color", "1.5,2.0,a,7.0"]


def test_dtype_is_of_the_values_alone(client: httpx.Client) -> None:
    """Numeric labels and colors keep every bit beside float32 values."""
    body = {"data": [[1.5], [2.5]], "labels": [16777217, 1], "color": [0.1, 0.2]}
    path = client.post("/v1/datasets", json=body).json()["links"]["data"] + "?dtype=float32"
    table = arrow_of(get(client, path, ARROW))
    assert [str(column.type) for column in table.columns] == ["float", "double", "double"]
    assert table.to_pydict() == {"x1": [1.5, 2.5], "label": body["labels"], "color": body["color"]}


def test_arrow_of_a_data_set_is_its_values(client: httpx.Client) -> None:
    """Columns are x1 to xd without names; float32 on request."""
    path = f"/v1/datasets/{upload(client, X)}/data"
    table = arrow_of(get(client, path, ARROW))
    assert table.column_names == ["x1", "x2", "x3"]
    np.testing.assert_array_equal(np.column_stack(table.columns), X)
    path = f"/v1/datasets/{upload(client, X[:, :2])}/data?dtype=float32"
    assert {str(column.type) for column in arrow_of(get(client, path, ARROW)).columns} == {"float"}


def test_one_draw_as_a_table(client: httpx.Client, drawn: str) -> None:
    """A row per point, columns y1 to yp, with the bits of npy."""
    expected = npy_of(client, f"{drawn}/draws/1")
    outcome = rows(get(client, f"{drawn}/draws/1", CSV))
    np.testing.assert_array_equal([[float(row["y1"]), float(row["y2"])] for row in outcome], expected)
    table = arrow_of(get(client, f"{drawn}/draws/1?points=5:9", ARROW))
    np.testing.assert_array_equal(np.column_stack([table["y1"], table["y2"]]), expected[5:9])


@pytest.mark.parametrize("query", ["", "?points=3:6&draws=1:3", "?points=-1,0&draws=2"])
def test_draws_of_a_job_as_a_table(client: httpx.Client, result: str, query: str) -> None:
    """A row per point of each draw, with the draw's index."""
    whole = npy_of(client, result)
    table = arrow_of(get(client, result + query, ARROW))
    assert table.column_names == ["draw", "scale", "point", "y1", "y2"]
    outcome = rows(get(client, result + query, CSV))
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


def test_summary_and_generated_data_as_tables(
    client: httpx.Client, stores: Stores, drawn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A summary has a row per point; generated data a row per point of each data set."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    job = client.get(f"{drawn}/summary?count=4&resamples=4&wait=0").json()
    tasks.analyse(job["id"], 0)
    path = f"{drawn}/summary?count=4&resamples=4&points=20:23"
    arrays = get(client, path, JSON).json()["arrays"]
    table = arrow_of(get(client, path, ARROW)).to_pydict()
    assert table["point"] == [20, 21, 22]
    assert table["spread"] == arrays["spread"]["data"]
    assert table["covariance_1_2"] == [matrix[0][1] for matrix in arrays["covariance"]["data"]]
    assert get(client, path, CSV).text.splitlines()[0].startswith("point,consensus_1,consensus_2,covariance_1_1")
    job = client.post(f"{drawn}/reconstructions", json={"count": 3, "first": 1}).json()
    tasks.analyse(job["id"], 0)
    path = f"/v1/jobs/{job['id']}/result"
    data = npy_of(client, path)
    response = arrow_of(get(client, path + "?draws=1:3&points=0,149", ARROW)).to_pylist()
    assert [(row["draw"], row["point"]) for row in response] == [(2, 0), (2, 149), (3, 0), (3, 149)]
    assert [response[1][f"x{i}"] for i in (1, 2, 3)] == data[1, 149].tolist()
    assert ReconstructionsSpec.main == "data"
    np.testing.assert_array_equal(npy_of(client, path + "?draws=1:3&points=0,149"), data[1:3, [0, 149]])


def test_a_slice_of_a_data_set_has_its_labels_and_coordinates(client: httpx.Client) -> None:
    """Labels and coordinates belong to the selected points."""
    response = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 30}).json()["links"]["data"]
    whole, part = get(client, response, JSON).json(), get(client, response + "?points=4:7", JSON).json()
    assert (part["shape"], part["data"]) == ([3, 3], whole["data"][4:7])
    assert part["coordinates"] == whole["coordinates"][4:7]


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
    """Half open, negative from the end, lists in order; the whole axis has no tag."""
    chosen = Selection.of(text, 5, "points")
    assert list(chosen.positions) == list(expected)
    values = np.arange(20).reshape(2, 5, 2)
    np.testing.assert_array_equal(chosen.take(values, axis=1), values[:, list(expected)])
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
        Selection.of(text, 5, "points")
    assert (caught.value.problem.code, caught.value.problem.status) == (code, 422)
    if code == "slice-out-of-range":
        assert caught.value.problem.details["size"] == 5


def test_slices_of_missing_axes_are_refused(client: httpx.Client, result: str, drawn: str) -> None:
    """A slice out of range, or of a missing axis, is refused over HTTP, too."""
    for path in (f"{result}?points=0:151", f"{result}?draws=4", f"{drawn}/draws/0?points=150"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:slice-out-of-range")


def test_arrow_without_pyarrow_is_406_with_the_remedy(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow is not offered, and 406 names the extra; CSV works."""
    monkeypatch.setattr("service.encoding.result.has_arrow", lambda: False)
    path = f"/v1/datasets/{upload(client, X)}/data"
    answer = client.get(path, headers={"accept": ARROW})
    assert (answer.status_code, ARROW in answer.json()["details"]["offered"]) == (406, False)
    assert arrow.REMEDY in answer.json()["remedy"]
    assert get(client, path, CSV).text.startswith("x1,x2,x3")
    answer = client.get(path, headers={"accept": f"{ARROW}, application/json;q=0.5"})
    assert answer.headers["content-type"] == JSON
