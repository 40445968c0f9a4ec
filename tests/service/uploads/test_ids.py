"""Ids of the rows: kept exactly as in the file, for every format, and given back with the data."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from service.uploads import column_roles
from tests.service.uploads.bodies import CSV, FEATHER, PARQUET, feather, packed, read, refused

if TYPE_CHECKING:
    import httpx


NUMBERS = {"x": [0.5, 1.5, 2.5], "y": [1.0, 2.0, 4.0]}


@pytest.mark.parametrize(
    ("ids", "kind", "kept"),
    [
        pytest.param(["3", "5", "9007199254740992"], "i", [3, 5, 2**53], id="whole numbers"),
        pytest.param(["007", "008", "9"], "U", ["007", "008", "9"], id="leading zeros"),
        pytest.param(["3", "5", "9007199254740993"], "U", ["3", "5", "9007199254740993"], id="beyond 2^53"),
        pytest.param(["+1", "-0", "1.0"], "U", ["+1", "-0", "1.0"], id="other spellings of numbers"),
        pytest.param(["b-1", "a-2", "ü ß"], "U", ["b-1", "a-2", "ü ß"], id="text"),
        pytest.param(["7", "7", "-3"], "i", [7, 7, -3], id="repeated"),
        pytest.param(["7", "", "a"], "U", ["7", "", "a"], id="missing"),
    ],
)
def test_ids_of_text_stay_as_they_are(ids: list[str], kind: str, kept: list[Any]) -> None:
    """Numbers in their usual digits are integers, all else is text; a missing id is empty and noticed."""
    rows = [f"{x},{id_},{y}" for x, id_, y in zip(NUMBERS["x"], ids, NUMBERS["y"], strict=True)]
    table = read("\n".join(["x,name,y", *rows]) + "\n", id=["name"])
    assert table.ids is not None
    assert (table.ids.dtype.kind, table.ids.tolist()) == (kind, kept)
    assert table.names == ["x", "y"]
    missing = [notice for notice in table.source.get("notices", []) if notice.startswith("The id is missing in 1 of 3")]
    assert len(missing) == ids.count("")


def test_detected_ids_are_kept() -> None:
    """The index of a frame and a column with the name of an id are ids without a role."""
    frame = pd.DataFrame(NUMBERS, index=[10, 20, 30])
    assert read(frame.to_csv()).ids.tolist() == [10, 20, 30]  # type: ignore[union-attr]
    named = feather(pa.table(dict(frame.assign(customer_id=["c", "a", "b"]))))
    assert read(named, FEATHER).ids.tolist() == ["c", "a", "b"]  # type: ignore[union-attr]
    assert read(frame.to_csv(index=False)).ids is None
    assert read(frame.to_csv(), features=["*"]).ids is None


@pytest.mark.parametrize("kind", [PARQUET, FEATHER])
@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        pytest.param([4, 2, 9], [4, 2, 9], id="integers"),
        pytest.param(pa.array([4, None, 9]), ["4", "", "9"], id="integers with a null"),
        pytest.param([4.0, float("nan"), 9.0], ["4", "", "9"], id="integers of pandas with a missing one"),
        pytest.param(pa.array(["p", "q", "p"]).dictionary_encode(), ["p", "q", "p"], id="categories"),
        pytest.param([2**63 - 1, 2**53, 1], [str(2**63 - 1), str(2**53), "1"], id="beyond 2^53"),
        pytest.param(
            pa.array(np.array(["2026-01-01", "2026-01-02", "2026-02-01"], "datetime64[D]")),
            ["2026-01-01", "2026-01-02", "2026-02-01"],
            id="dates",
        ),
    ],
)
def test_ids_of_arrow_and_parquet(kind: str, ids: Any, kept: list[Any]) -> None:
    """Every type of column is kept as its text, whole numbers as integers."""
    write = packed if kind == PARQUET else feather
    table = read(write(pa.table({**NUMBERS, "case": ids})), kind, id=["case"])
    assert table.ids is not None
    assert table.ids.tolist() == kept
    np.testing.assert_array_equal(table.values, np.column_stack(list(NUMBERS.values())))


def test_several_columns_of_ids_are_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns are in the order of the file, and a notice says if some are not stored."""
    body = "site,plot,x\nA,1,0.5\nA,2,1.5\nB,1,2.5\n"
    assert read(body, id=["plot", "site"]).ids.tolist() == [["A", "1"], ["A", "2"], ["B", "1"]]  # type: ignore[union-attr]
    monkeypatch.setattr("service.uploads.column_table.MAX_IDS", 1)
    monkeypatch.setattr(column_roles, "MAX_IDS", 1)
    table = read(body, id=["plot", "site"])
    assert table.ids is not None
    assert table.ids.tolist() == ["A", "A", "B"]
    assert table.source["notices"] == ["Of 2 columns of ids the values of the first 1 are stored."]


def test_ids_that_cannot_be_stored_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long id is refused with its row, and many wide ones together; whole numbers are never too long."""
    for body, code in ((f"x,k\n1,a\n2,{'b' * 1001}\n", "id-too-long"), ("x,k\n1,a\0\n", "invalid-id")):
        problem = refused(body, id=["k"])
        assert (problem.code, problem.details["row"]) == (code, body.count("\n") - 1)
    monkeypatch.setattr("service.uploads.row_texts.MAX_TEXTS", 10)
    assert read("x,k\n1,123456\n2,123457\n", id=["k"]).ids.tolist() == [123456, 123457]  # type: ignore[union-attr]
    assert refused("x,k\n1,12345a\n2,12345b\n", id=["k"]).details == {"allowed": 5}


def test_the_service_gives_ids_back(client: httpx.Client) -> None:
    """Record, preview, values in every format, and the resource of the ids have them; each format reads them again."""
    body = "customer,x,y\nC-7,0.5,1\nC-3,1.5,2\nC-9,2.5,4\n"
    headers, ids = {"content-type": CSV}, ["C-7", "C-3", "C-9"]
    first = client.post("/v1/datasets?id=customer", content=body, headers=headers).json()
    assert (first["has_ids"], first["columns"]) == (True, {"id": ["customer"]})
    preview = client.post("/v1/datasets/preview?id=customer", content=body, headers=headers).json()
    assert (preview["id"], preview["ids"]) == (first["id"], ids)
    data, path = first["links"]["data"], first["links"]["ids"]
    whole = client.get(data).json()
    assert whole["ids"] == ids
    assert client.get(path).json() == {"shape": [3], "dtype": "str96", "data": ids}
    assert client.get(f"{path}?points=1:").json()["data"] == ids[1:]
    array = client.get(path, headers={"accept": "application/x-npy"})
    assert np.load(io.BytesIO(array.content)).tolist() == ids
    again = client.get(path, headers={"accept": "application/x-npy", "if-none-match": array.headers["etag"]})
    assert again.status_code == 304
    csv = client.get(f"{data}?points=0:2", headers={"accept": CSV}).text
    assert csv.splitlines() == ["id,x,y", "C-7,0.5,1.0", "C-3,1.5,2.0"]
    as_json = {name: whole[name] for name in ("data", "names", "ids")}
    assert client.post("/v1/datasets", json=as_json).json()["id"] == first["id"]
    npz = client.get(data, headers={"accept": "application/zip"}).content
    repeated = client.post("/v1/datasets", content=npz, headers={"content-type": "application/zip"}).json()
    assert repeated["id"] == first["id"]
    text = client.get(data, headers={"accept": CSV}).text
    assert client.post("/v1/datasets", content=text, headers=headers).json()["id"] == first["id"]


def test_ids_are_content(client: httpx.Client) -> None:
    """Equal values with other ids, or without, are other data sets; without ids their resource is a 404."""
    data = [[0.5, 1.0], [1.5, 2.0]]
    bodies: list[dict[str, Any]] = [{"data": data, "ids": ids} for ids in ([1, 2], ["1", "02"], [[1, 2], [3, 4]], None)]
    records = [client.post("/v1/datasets", json=body).json() for body in bodies]
    assert len({record["id"] for record in records}) == 4
    assert [record["has_ids"] for record in records] == [True, True, True, False]
    assert client.get(f"/v1/datasets/{records[2]['id']}/ids").json()["data"] == [[1, 2], [3, 4]]
    csv = client.get(records[2]["links"]["data"], headers={"accept": CSV}).text
    assert csv.splitlines()[:2] == ["id_1,id_2,x1,x2", "1,2,0.5,1.0"]
    missing = client.get(f"/v1/datasets/{records[3]['id']}/ids")
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:glle:problem:no-ids")
    assert "ids" not in records[3]["links"]


@pytest.mark.parametrize("ids", [[1], [1.5, 2], [True, False], "ab", [[1], [2, 3]], [[], []], [[1], 2]])
def test_malformed_ids_of_json_are_refused(client: httpx.Client, ids: Any) -> None:
    """Ids are one string or integer for each point, or rows of equal length."""
    refused = client.post("/v1/datasets", json={"data": [[0.5], [1.5]], "ids": ids})
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:glle:problem:malformed-json")
    assert '"ids"' in refused.json()["detail"]


def test_a_feature_called_id_keeps_its_name(client: httpx.Client) -> None:
    """The column of ids gets another name in tables."""
    body = {"data": [[0.5], [1.5]], "names": ["id"], "ids": ["a", "b"]}
    record = client.post("/v1/datasets", json=body).json()
    csv = client.get(record["links"]["data"], headers={"accept": CSV}).text
    assert csv.splitlines()[0] == "id_,id"
