"""A table means the same in every way of reading it: files over HTTP, frames in this process and by the client."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from scipy.sparse import csr_array, save_npz

import glle
from glle.inputs import upload_of
from glle.reading import read_points
from glle.transport.errors import GlleServiceError
from glle_engine.base.errors import GlleError
from glle_engine.base.texts import Text
from service.uploads.registry import XLSX
from tests.client.answers import Stream
from tests.service.uploads.bodies import read
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

N = 24
BIG = 2**53 + 1
X = np.round(np.random.default_rng(1).normal(size=(N, 2)), 3)
XY: dict[str, Any] = {"x": X[:, 0].tolist(), "y": X[:, 1].tolist()}
DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days=row) for row in range(N)]
TEXTS = ("csv", "tsv")  # formats whose cells have no types


@dataclass(frozen=True)
class Table:
    """Columns and options of one table, and what each way to read it must give: the parts, or the refusal.

    `without` lists the ways that cannot hold such values. With `is_rounded`, a workbook rounds them: refused.
    """

    columns: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: ["x", "y"])
    labels: list[Any] | None = None
    colors: list[Any] | None = None
    ids: list[Any] | None = None
    notes: tuple[str, ...] = ()
    refusal: str = ""
    words: str = ""
    without: tuple[str, ...] = ()
    points: Any = None
    is_rounded: bool = False


SECONDS = [(day - dt.date(1970, 1, 1)).days * 86400.0 for day in DAYS]
DATES = ("'day' has dates. They are the colors", "The colors are dates, in seconds since 1970.")
WORDS = ["u", "v", "w", "v"] * (N // 4)
LARGE = [BIG + row % 4 for row in range(N)]
MANY = [f"w{row % 17}" for row in range(N)]  # neither few nor distinct
GAPS = {**XY, "x": [None if row == 5 else value for row, value in enumerate(XY["x"])]}
EACH = {
    "numbers": Table(XY),
    "words": Table({**XY, "kind": WORDS}, labels=WORDS, notes=("'kind' has 3 distinct words. It has the labels",)),
    "sex and region": Table(
        {"sex": ["F", "M"] * (N // 2), "Region": ["north", "south", "east"] * (N // 3), **XY},
        labels=["F", "M"] * (N // 2),
        notes=("'sex' has 2 distinct words. It has the labels", "'Region' has 3 distinct words and is set apart"),
    ),
    "names of rows": Table(
        {"s": [f"s-{i}" for i in range(N)], **XY}, ids=[f"s-{i}" for i in range(N)], notes=("'s' n",)
    ),
    "wells": Table(
        {**XY, "w": [f"{i // 8}_{i % 8}" for i in range(N)]},
        ids=[f"{i // 8}_{i % 8}" for i in range(N)],
        notes=("'w' n",),
    ),
    "classes with underscores": Table(
        {**XY, "w": ["1_0", "2_0"] * (N // 2)}, labels=["1_0", "2_0"] * (N // 2), notes=("'w' has 2",)
    ),
    "words for no number": Table(
        {**XY, "w": ["inf", "nan"] * (N // 2)}, labels=["inf", "nan"] * (N // 2), notes=("'w' has 2",)
    ),
    "dates": Table({**XY, "day": DAYS}, colors=SECONDS, notes=DATES),
    "dates as texts": Table({**XY, "day": [str(day) for day in DAYS]}, colors=SECONDS, notes=DATES),
    "German dates": Table({**XY, "day": [f"{day:%d.%m.%Y}" for day in DAYS]}, colors=SECONDS, notes=DATES),
    "dates with gaps": Table(
        {**XY, "day": [None if row % 5 == 3 else day for row, day in enumerate(DAYS)]},
        notes=("'day' has dates and is set apart",),
    ),
    "dates as labels": Table({**XY, "day": DAYS}, {"labels": "day"}, labels=[str(day) for day in DAYS]),
    "truth values": Table({**XY, "ok": [True, False] * (N // 2)}, names=["x", "y", "ok"]),
    "long labels": Table({**XY, "g": LARGE}, {"labels": "g"}, labels=[str(row) for row in LARGE], is_rounded=True),
    "long ids": Table(
        {**XY, "user_id": [2**60 + row for row in range(N)]},
        ids=[str(2**60 + row) for row in range(N)],
        notes=("'user_id' n",),
        is_rounded=True,
    ),
    "long categories": Table(
        {**XY, "g": LARGE},
        {"one_hot": ["g"]},
        names=["x", "y", *(f"g={BIG + row}" for row in range(4))],
        is_rounded=True,
    ),
    "long features": Table({**XY, "g": LARGE}, refusal="inexact-integer", words="2^53", is_rounded=True),
    "labels with a gap": Table(
        {**XY, "k": [None if row == 3 else word for row, word in enumerate(WORDS)]},
        {"labels": "k"},
        labels=["" if row == 3 else word for row, word in enumerate(WORDS)],
        notes=("missing in 1 of 24",),
    ),
    "padded ids": Table(
        {**XY, "id": [f"{row:03}" for row in range(N)]}, ids=[f"{row:03}" for row in range(N)], notes=("'id' n",)
    ),
    "ids with exponents": Table(
        {**XY, "plate id": [f"00{row:02}E59" for row in range(N)]},
        ids=[f"00{row:02}E59" for row in range(N)],
        notes=("'plate id' n",),
    ),
    "ids with a word": Table(
        {**XY, "user_id": [f"{row}a" if row % 7 == 0 else str(row) for row in range(N)]},
        ids=[f"{row}a" if row % 7 == 0 else str(row) for row in range(N)],
        notes=("'user_id' n",),
    ),
    **{
        f"numbers like {mark.format(1.5)}, {share:.0%}": Table(
            {
                **XY,
                "v": [mark.format(value) if row % 5 or share == 1 else str(value) for row, value in enumerate(XY["y"])],
            },
            refusal="unsupported-column",
            words="numbers as texts",
        )
        for mark in ("<{}", "({})", "{}-", "{}D+01", "{}*", "{} H", "~{}", "{}\u00b10.1", "{} [1]")
        for share in (0.8, 1)
    },
    **{
        f"numbers like {mark}": Table(
            {**XY, "v": [mark.format(row, row + 100) for row in range(N)]},
            refusal="unsupported-column",
            words="numbers as texts",
        )
        for mark in ("\u2212{}.5", "{}\u00a0{}", "{}\u2019{}", "CHF {}.50", "{}.5 kg")
    },
    "numbers with gaps and flags": Table(
        {**XY, "v": ["BDL" if row % 6 == 0 else f"{row}.5 est." if row % 2 else f"> {row}" for row in range(N)]},
        refusal="unsupported-column",
        words="needs a role",
    ),
    "words that need a role": Table(
        {**XY, "note": MANY}, refusal="unsupported-column", words="'note' (text, such as 'w0')"
    ),
    "missing values": Table(GAPS, refusal="missing-value", words="x (1)"),
    "all problems": Table(
        {**GAPS, "note": MANY, "g": LARGE}, refusal="unsupported-column", words="x (1)", is_rounded=True
    ),
    "rows dropped": Table(
        {**GAPS, "k": WORDS},
        {"missing": "drop", "labels": "k"},
        labels=WORDS[:5] + WORDS[6:],
        notes=("1 of 24 rows have missing values and were dropped",),
        points=np.delete(X, 5, axis=0),
    ),
    "medians": Table(
        GAPS,
        {"missing": "median"},
        notes=("replaced by the medians",),
        points=np.column_stack([np.where(np.arange(N) == 5, np.median(np.delete(X[:, 0], 5)), X[:, 0]), X[:, 1]]),
    ),
    "roles": Table(
        {"a": WORDS, **XY, "b": MANY, "c": [row % 5 for row in range(N)]},
        {"labels": "a", "ignore": ["b"], "colors": "c"},
        labels=WORDS,
        colors=[float(row % 5) for row in range(N)],
    ),
    "several problems of roles": Table(XY, {"labels": "x", "ignore": ["x"]}, refusal="same-column", words="'x'"),
    "no such column": Table(XY, {"labels": "z"}, refusal="no-such-column", words="x, y"),
    "features": Table({**XY, "z": XY["x"]}, {"features": ["x", "y"]}),
    "integers and floats": Table({**XY, "i": list(range(5, 5 + N))[::-1]}, names=["x", "y", "i"]),
    "no id": Table(
        {"case_id": [3, 1, 2] * (N // 3), **XY}, names=["case_id", "x", "y"], notes=("has the name of an id",)
    ),
    "counter": Table({"t": list(range(N)), **XY}, names=["t", "x", "y"], notes=("'t' counts the rows",)),
    "class as a number": Table(
        {**XY, "Class": [i % 3 for i in range(N)]},
        names=["x", "y", "Class"],
        notes=("'Class' has 3 different whole numbers and is fitted as a feature",),
    ),
    "vectors": Table({"v": [row.tolist() for row in X]}, names=["v[0]", "v[1]"], without=(*TEXTS, "xlsx"), points=X),
    "vectors of integers": Table(
        {"v": [[row % 7, -row, 3 * row] for row in range(N)]},
        names=["v[0]", "v[1]", "v[2]"],
        without=(*TEXTS, "xlsx"),
        points=np.array([[row % 7, -row, 3 * row] for row in range(N)], np.float64),
    ),
    "vectors of long integers": Table(
        {**XY, "v": [[1, BIG + row] for row in range(N)]},
        refusal="inexact-integer",
        words="v (24)",
        without=(*TEXTS, "xlsx"),
    ),
    "decimals": Table(
        {**XY, "p": [Decimal(row) / 4 for row in range(N)]},
        names=["x", "y", "p"],
        points=np.column_stack([X, np.arange(N) / 4]),
    ),
    "texts of digits": Table(
        {**XY, "zip": [f"{row * 7 % 5}1067" for row in range(N)]},
        refusal="unsupported-column",
        words="'zip' has numbers as texts, such as '01067'",
        without=TEXTS,
    ),
    "texts of digits as labels": Table(
        {**XY, "zip": [f"{row * 7 % 5}1067" for row in range(N)]},
        {"labels": "zip"},
        labels=[f"{row * 7 % 5}1067" for row in range(N)],
    ),
    "durations": Table(
        {**XY, "d": [dt.timedelta(row) for row in range(N)]},
        refusal="unsupported-column",
        words="'d' (duration)",
        without=TEXTS,
    ),
}


def pandas(table: Table) -> Any:
    """Return the table as a frame of pandas, whose types give the missing values."""
    return pd.DataFrame({name: pd.Series(values) for name, values in table.columns.items()})


def polars(table: Table) -> Any:
    """Return the table as a frame of polars."""
    return import_module("polars").DataFrame(table.columns)


def arrow(table: Table) -> Any:
    """Return the table as one of pyarrow."""
    return pa.table({name: pa.array(values) for name, values in table.columns.items()})


def _written(write: Callable[[Any], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _stream(table: Table) -> bytes:
    content = arrow(table)

    def write(buffer: Any) -> None:
        with pa.ipc.new_stream(buffer, content.schema) as writer:
            writer.write_table(content, max_chunksize=7)

    return _written(write)


def _workbook(table: Table) -> bytes:
    book = import_module("openpyxl").Workbook()
    for row in [[*table.columns], *zip(*table.columns.values(), strict=True)]:
        book.active.append(row)
    return _written(book.save)


def _text(table: Table, separator: str) -> bytes:
    rows = zip(*table.columns.values(), strict=True)
    lines = [["" if value is None else str(value) for value in row] for row in [[*table.columns], *rows]]
    return "\n".join(separator.join(row) for row in lines).encode()


FILES: dict[str, tuple[str, Callable[[Table], bytes]]] = {
    "csv": ("text/csv", lambda table: _text(table, ",")),
    "tsv": ("text/tab-separated-values", lambda table: _text(table, "\t")),
    "xlsx": (XLSX, _workbook),
    "parquet": (
        "application/vnd.apache.parquet",
        lambda table: _written(lambda to: parquet.write_table(arrow(table), to)),
    ),
    "arrow stream": ("application/vnd.apache.arrow.stream", _stream),
    "arrow file": (
        "application/vnd.apache.arrow.file",
        lambda table: _written(lambda to: feather.write_feather(arrow(table), to)),
    ),
    "arrow file of polars": (
        "application/vnd.apache.arrow.file",
        lambda table: _written(polars(table).write_ipc),
    ),
    "parquet of polars": ("application/vnd.apache.parquet", lambda table: _written(polars(table).write_parquet)),
}
FRAMES: dict[str, Callable[[Table], Any]] = {
    "pandas": pandas,
    "pandas with nullable types": lambda table: pandas(table).convert_dtypes(),
    "polars": polars,
    "pyarrow": arrow,
    "stream": lambda table: Stream(arrow(table)),
}


def _in_words(notices: list[dict[str, Any]]) -> list[str]:
    return [Text.from_json(notice["message_parts"]) for notice in notices]


def _of_service(notices: list[str], arrays: Any, names: list[str] | None) -> dict[str, Any]:
    return {
        "names": names,
        "values": arrays["data"],
        **{name: arrays[name].tolist() if name in arrays else None for name in ("labels", "colors", "ids")},
        "notes": notices,
    }


def by_reader(table: Table, way: str, client: httpx.Client) -> dict[str, Any]:
    """Read a file, or the body that the client makes of a frame, by the service's reader, without HTTP."""
    del client
    query: Any
    if way in FILES:
        (media, write), query = FILES[way], table.options
        body = write(table)
    else:
        options: Any = table.options
        upload = upload_of(FRAMES[way](table), options)
        media, query, body = upload.body.media, upload.query, b"".join(upload.body.pieces())
    try:
        parsed = read(body, media, **query)
    except ProblemError as error:
        return {"refusal": error.problem.code, "words": f"{error.problem.detail} {error.problem.remedy}"}
    arrays = {"data": parsed.values, **parsed.extras}  # noqa: PD011 # no pandas
    return _of_service(_in_words(parsed.source.get("notices", [])), arrays, parsed.names)


def by_http(table: Table, way: str, client: httpx.Client) -> dict[str, Any]:
    """Upload a file to the service; return the stored parts, or the refusal."""
    media, write = FILES[way]
    answer = client.post("/v1/datasets", content=write(table), headers={"content-type": media}, params=table.options)
    body = answer.json()
    if answer.is_error:
        return {
            "refusal": body["type"].rpartition(":")[2],
            "words": " ".join(Text.from_json(body[f"{name}_parts"]) for name in ("detail", "remedy")),
        }
    content = client.get(body["links"]["data"], headers={"accept": "application/zip"}).content
    client.delete(body["links"]["self"])  # the next upload of the same values is read again
    with np.load(io.BytesIO(content)) as arrays:
        return _of_service(_in_words(body["notices"]), dict(arrays), body["names"])


def by_library(table: Table, way: str, client: httpx.Client) -> dict[str, Any]:
    """Read a frame in this process; return its parts, or the refusal."""
    del client
    try:
        points = read_points(FRAMES[way](table), table.options)
    except GlleError as error:
        return {"refusal": error.code, "words": str(error)}
    parts = {name: getattr(points, name) for name in ("labels", "colors", "ids")}
    return {
        "names": points.names,
        "values": points.X,
        **{name: None if part is None else part.tolist() for name, part in parts.items()},
        "notes": [note.message for note in points.notes],
    }


def by_client(table: Table, way: str, client: httpx.Client) -> dict[str, Any]:
    """Send a frame to the service by the client; return the stored parts, or the refusal."""
    try:
        with glle.Client(str(client.base_url), progress=False) as service:
            dataset = service.dataset(FRAMES[way](table), **table.options)
            return _of_service(dataset.notices, dataset.arrays(), dataset.names)
    except GlleServiceError as error:
        return {"refusal": error.code, "words": f"{error.detail} {error.remedy}"}


WAYS = {
    **{f"{way} over HTTP": (by_http, way) for way in ("csv", "arrow file of polars")},
    **{f"{way} in a body": (by_reader, way) for way in FILES},
    **{f"{way} in this process": (by_library, way) for way in FRAMES},
    **{f"{way} by the client": (by_reader, way) for way in FRAMES},
    "pandas by the client over HTTP": (by_client, "pandas"),
}


# Uploads of these have, together, each kind of option, notice and refusal. All tables are read as their bodies.
OVER_HTTP = ("numbers", "words", "rows dropped", "medians", "roles", "features", "long categories", "missing values")


def from_zero(text: str) -> str:
    """Return a message whose row numbers count from 0, to compare files with frames."""
    return re.sub(r"row (\d+), counted from (\d)", lambda match: f"row {int(match[1]) - int(match[2])}", text)


@pytest.mark.parametrize("name", EACH)
def test_a_table_is_the_same_in_every_way(name: str, client: httpx.Client) -> None:
    """Each way gives the same features, labels, colors, ids, names and notes, or the same refusal."""
    table = EACH[name]
    plain = by_library(table, "pyarrow", client)
    for way, (by, of) in WAYS.items():
        if of in table.without or (by in {by_http, by_client} and name not in OVER_HTTP):
            continue
        parts = by(table, of, client)
        if table.is_rounded and of == "xlsx":
            assert parts.get("refusal") == (table.refusal or "inexact-integer"), way
            assert "2^53" in parts["words"], way
        elif table.refusal:
            assert (parts.get("refusal"), from_zero(parts["words"])) == (table.refusal, from_zero(plain["words"])), way
            assert table.words in parts["words"], way
        else:
            assert "refusal" not in parts, (way, parts)
            require_table(table, parts, way)


def require_table(table: Table, sent: dict[str, Any], way: str) -> None:
    """Assert that the parts which one way gave are those that the table expects."""
    features = [name for name in table.names if name in table.columns]
    points = np.array([table.columns[x] for x in features], np.float64).T if table.points is None else table.points
    np.testing.assert_array_equal(np.asarray(sent["values"])[:, : points.shape[1]], points, err_msg=way)
    ids = sent["ids"] if table.options.get("missing") != "drop" else table.ids  # frames have the rows that stay
    parts = (sent["names"], sent["labels"], sent["colors"], ids)
    assert parts == (table.names, table.labels, table.colors, table.ids), way
    assert len(sent["notes"]) == len(table.notes), (way, sent["notes"])
    assert all(part in note for part, note in zip(table.notes, sent["notes"], strict=True)), (way, sent["notes"])


class Cells:
    """Stand-in for an AnnData, with a column `k` of labels in `obs`."""

    def __init__(self, values: Any, labels: list[Any]) -> None:
        self.X, self.var_names = values, pd.Index(["x", "y"])
        self.obs_names = pd.Index([f"s-{row}" for row in range(N)])
        self.obs = pd.DataFrame({"k": labels}, index=self.obs_names)
        self.obsm: dict[str, Any] = {}


def _members(labels: list[Any]) -> dict[str, Any]:
    return {"names": np.array(["x", "y"]), "labels": np.array(labels), "ids": np.array([f"s-{i}" for i in range(N)])}


ARRAYS: dict[str, Callable[[list[Any]], tuple[str, bytes]]] = {
    "npz": lambda labels: ("application/zip", _written(lambda to: np.savez(to, data=X, **_members(labels)))),
    "sparse": lambda labels: ("application/zip", _sparse(labels)),
    "JSON": lambda labels: (
        "application/json",
        json.dumps({"data": X.tolist(), **{name: part.tolist() for name, part in _members(labels).items()}}).encode(),
    ),
}


def _sparse(labels: list[Any]) -> bytes:
    with np.load(io.BytesIO(_written(lambda to: save_npz(to, csr_array(X))))) as arrays:
        members = {**arrays, **_members(labels)}
    return _written(lambda to: np.savez(to, **members))


@pytest.mark.parametrize("labels", [WORDS, [7.0, 8.0] * (N // 2), LARGE], ids=["words", "numbers", "long"])
@pytest.mark.parametrize("way", [*ARRAYS, "AnnData", "AnnData by the client", "array and labels by the client"])
def test_arrays_have_the_labels_and_ids_of_a_table(way: str, labels: list[Any], client: httpx.Client) -> None:
    """Labels and ids of npz, JSON and AnnData are stored exactly; JSON refuses integers that its readers round."""
    expected = list(map(str, labels)) if labels is LARGE else labels
    names: Any = ["x", "y"]
    ids: Any = [f"s-{row}" for row in range(N)]
    if way in ARRAYS:
        media, body = ARRAYS[way](labels)
        answer = client.post("/v1/datasets", content=body, headers={"content-type": media})
        if labels is LARGE and way == "JSON":
            assert "integers to 2^53" in answer.json()["detail"]
            return
        content = client.get(answer.json()["links"]["data"], headers={"accept": "application/zip"}).content
        with np.load(io.BytesIO(content)) as arrays:
            stored = _of_service([], dict(arrays), answer.json()["names"])
    elif way == "AnnData":
        points = read_points(Cells(csr_array(X), labels), {"labels": "k"})
        assert points.labels is not None
        assert points.ids is not None
        parts = {"labels": points.labels.tolist(), "ids": points.ids.tolist()}
        stored = {"names": points.names, "values": points.X.toarray(), **parts}
    else:
        with glle.Client(str(client.base_url), progress=False) as service:
            if way == "AnnData by the client":
                dataset = service.dataset(Cells(csr_array(X), labels), labels="k")
            else:
                dataset, names, ids = service.dataset(X, labels=labels), None, None
            stored = _of_service([], dataset.arrays(), dataset.names)
    np.testing.assert_array_equal(stored["values"], X)
    assert (stored["names"], stored["labels"], stored["ids"]) == (names, expected, ids)
