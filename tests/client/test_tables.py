"""Tables with names: the options of every method that takes data, refused columns, Arrow streams."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from glle import Client
from glle.inputs import DataOptions, upload_of
from glle_engine.methods import METHODS
from tests.client.answers import DATASET, Service, job, posterior

if TYPE_CHECKING:
    from collections.abc import Callable

WHEN = pd.date_range("2024-01-01", periods=4, freq="h")
FRAME = pd.DataFrame({"x": [1.5, 2.5, 4.0, 8.0], "y": [1, 2, 4, 3], "kind": ["u", "v", "u", "v"], "when": WHEN})
ROLES: Any = {"label": "kind", "ignore": "when"}


class Stream:
    """Object that has nothing but an Arrow stream, as a DuckDB relation."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream of the table."""
        return self._table.__arrow_c_stream__(requested_schema)


TABLES = {"pandas": FRAME, "arrow": Stream(pa.Table.from_pandas(FRAME))}
METHODS_WITH_DATA: dict[str, Callable[..., Any]] = {
    "dataset(frame": lambda client, data, **options: client.dataset(data, **options),
    "preview(frame": lambda client, data, **options: client.preview(data, **options),
    "fit(frame": lambda client, data, **options: client.fit(data, **options),
    "estimate_fit(frame": lambda client, data, **options: client.estimate_fit(data, **options),
    "advice(frame": lambda client, data, **options: client.advice(data, **options),
    "embed(frame, 'pca'": lambda client, data, **options: client.embed(data, "pca", **options),
    "compare(frame, methods": lambda client, data, **options: client.compare(data, ["pca", "lle"], **options),
    "estimate(frame, 'pca'": lambda client, data, **options: client.estimate(data, "pca", **options),
    "transform(frame": lambda client, data, **options: posterior(client).transform(data, **options),
}


@pytest.mark.parametrize("call", METHODS_WITH_DATA)
@pytest.mark.parametrize("table", TABLES)
def test_refused_columns_are_named_with_the_calls_that_help(call: str, table: str) -> None:
    """The message has all such columns, and the user's call with each remedy; nothing is sent."""
    with pytest.raises(ValueError, match="not numeric") as refused:
        METHODS_WITH_DATA[call](Service().client(), TABLES[table])
    message = str(refused.value)
    assert message.startswith("The columns 'kind', 'when' (")
    assert f"take 'kind' as labels with {call}, label='kind', ignore=['when'])" in message
    assert f"leave them out with {call}, ignore=['kind', 'when'])" in message
    assert message.endswith(f"with {call}, one_hot=['kind'], ignore=['when']).")


@pytest.mark.parametrize("call", METHODS_WITH_DATA)
@pytest.mark.parametrize("table", TABLES)
def test_every_method_takes_the_options_of_the_data(call: str, table: str) -> None:
    """The first request is the upload, whose query has the roles."""
    service = Service(httpx.Response(418, json={}))
    with pytest.raises(Exception, match="418"):
        METHODS_WITH_DATA[call](service.client(), TABLES[table], **ROLES)
    query = service.requests[0].url.params
    assert (query["label"], query.get_list("ignore")) == ("kind", ["when"])


@pytest.mark.parametrize("table", TABLES)
def test_dates_are_no_features_and_no_colors(table: str) -> None:
    """A column with a date needs a role, and the remedy has the roles that the call has already."""
    data = TABLES[table]
    with pytest.raises(
        ValueError, match=r"column 'when' \(.*\) is not numeric: leave it out with fit\(frame, label='kind'"
    ):
        Service().client().fit(data, label="kind")
    with pytest.raises(ValueError, match=r"ignore=\['kind', 'when'\]\)"):
        Service().client().fit(data, ignore=["kind"])
    with pytest.raises(ValueError, match=r"'when' of type .* is no color: name a column of numbers"):
        Service().client().fit(data, label="kind", color="when")


def test_a_vector_of_labels_is_an_option_of_a_fit() -> None:
    """The message offers no second label."""
    with pytest.raises(ValueError, match="not numeric: leave it out") as refused:
        Service().client().fit(FRAME[["x", "kind"]], labels=[0, 1, 0, 1])
    assert "label=" not in str(refused.value)


@pytest.mark.parametrize("name", ["truth", "labels"])
def test_remedies_of_other_tables_name_their_argument(name: str) -> None:
    """A table of labels or of true coordinates is uploaded by a separate call."""
    service = Service(*[httpx.Response(200, json={**DATASET, "has_labels": False}) for _ in range(2)])
    with pytest.raises(ValueError, match=rf"{name}=client\.dataset\(frame, ignore="):
        service.client().embed(np.ones((4, 2)), "pca", **{name: FRAME})


@pytest.mark.parametrize("call", [name for name in METHODS_WITH_DATA if name != "preview(frame"])
def test_roles_of_a_stored_data_set_are_refused(call: str) -> None:
    """They have no effect, and nothing is sent."""
    with pytest.raises(ValueError, match=r"stored .* leave out label=, ignore=, or give the data"):
        METHODS_WITH_DATA[call](Service().client(), "ds_1", **ROLES)


def test_a_data_set_is_one() -> None:
    """`dataset` returns it, without a request."""
    client = Service().client()
    dataset = client._session.build("dataset", DATASET)
    assert client.dataset(dataset) is dataset


def test_no_method_has_a_parameter_with_the_name_of_an_option() -> None:
    """`embed` and `estimate` tell both apart by their names."""
    parameters = {name for method in METHODS.values() for name in method.spec.schema()["properties"]}
    assert parameters
    assert not parameters & set(DataOptions.__annotations__)


SCORES = {"items": [{"name": "trustworthiness", "needs": "nothing"}, {"name": "neighborhood_hit", "needs": "labels"}]}
NEEDS = {"items": [{"name": "pca", "needs_labels": False}, {"name": "supervised-lle", "needs_labels": True}]}


@pytest.mark.parametrize(
    ("method", "scores", "labels"),
    [
        ("pca", None, "ds_1"),
        ("pca", [], None),
        ("pca", ["trustworthiness"], None),
        ("pca", ["neighborhood_hit"], "ds_1"),
        ("supervised-lle", [], "ds_1"),
    ],
)
def test_labels_of_the_data_go_with_what_uses_them(method: str, scores: Any, labels: str | None) -> None:
    """The service refuses labels that neither a method nor a score uses."""
    answers = {"/v1/datasets": {**DATASET, "has_labels": True}, "/v1/scores": SCORES, "/v1/methods": NEEDS}
    bodies = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path in answers:
            return httpx.Response(200, json=answers[request.url.path])
        if request.method == "POST":
            bodies.append(json.loads(request.read()))
            return job("succeeded", kind="embedding")
        return httpx.Response(200, json={"rows": []})

    client = Client("http://glle.test", progress=False, transport=httpx.MockTransport(answer))
    client.embed(FRAME, method, scores=scores, **ROLES)
    client.compare(FRAME, [method, {"method": "pca"}], scores=scores, **ROLES)
    assert [body["labels"] for body in bodies] == [labels, labels]


def test_an_arrow_stream_has_names_and_types() -> None:
    """Views of texts are texts, decimals are numbers, dates of labels are texts; values keep their bits."""
    table = pa.table(
        {
            "x": pa.array([0.1, 0.2], pa.float32()),
            "ok": [True, False],
            "price": pa.array([None, 2], pa.decimal128(9, 2)),
            "sum": pa.array([1, 2], pa.decimal128(38, 0)),
            "text": pa.array(["u", None], pa.string_view()),
            "category": pa.array(["u", "v"]).dictionary_encode(),
            "day": pa.array([0, 1], pa.timestamp("us", "UTC")),
        }
    )
    roles: Any = {"label": "day", "ignore": "text", "one_hot": "category"}  # a name is a list of one
    upload = upload_of(Stream(table), roles, colors=[3, 4])
    assert upload.query == {"label": "day", "ignore": ["text"], "one_hot": ["category"], "color": "color"}
    assert upload.body.media == "application/vnd.apache.arrow.stream"
    for _ in range(2):  # a repeated request has the same body
        sent = pa.ipc.open_stream(b"".join(upload.body.pieces())).read_all()
        assert sent.column_names == [*table.column_names, "color"]
        types = [pa.float32(), pa.bool_(), pa.float64(), pa.int64(), pa.large_string()]
        assert sent.schema.types[:5] == types
        assert sent["x"].to_pylist() == table["x"].to_pylist()
        assert sent["price"].to_pylist() == [None, 2.0]
        assert sent["day"].to_pylist() == ["1970-01-01 00:00:00Z", "1970-01-01 00:00:00.000001Z"]


def test_an_arrow_stream_goes_in_pieces_and_few_batches() -> None:
    """The service bounds the number of batches, and the client its memory."""
    small = pa.concat_tables([pa.table({"x": [float(i)], "y": [i]}) for i in range(1000)])
    batches = list(pa.ipc.open_stream(b"".join(upload_of(Stream(small)).body.pieces())))
    assert [batch.num_rows for batch in batches] == [1000]
    values = np.random.default_rng(0).normal(size=(400_000, 2))
    pieces = list(upload_of(pa.table({"x": values[:, 0], "y": values[:, 1]})).body.pieces())
    assert max(map(len, pieces)) < 2**20 + 2**12
    sent = pa.ipc.open_stream(b"".join(pieces)).read_all()
    np.testing.assert_array_equal(np.column_stack([sent["x"], sent["y"]]), values)


def test_a_column_is_an_array() -> None:
    """A stream of one column is no table."""
    body = b"".join(upload_of(pa.chunked_array([[1.0, 2.0]])).body.pieces())
    assert np.load(io.BytesIO(body)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (pa.table({"x": [1.0]}), {"label": "kind"}, "no column 'kind': name one of x"),
        (pa.table({"x": [1.0]}), {"labels": [1, 2]}, r"labels has shape \(2,\); the data have 1 rows"),
        (pa.table({"x": pa.array([2**70], pa.decimal128(38, 0))}), {}, "Cast the column 'x' of type decimal128"),
        (pa.table({"x": [[1.0, 2.0]]}), {}, r"column 'x' \(list<.*\) is not numeric: leave it out"),
        (type("LazyFrame", (), {"collect_schema": None})(), {}, r"give data\.collect\(\)"),
    ],
)
def test_tables_that_cannot_be_sent_are_refused(data: Any, options: Any, message: str) -> None:
    """The message has the value and the remedy."""
    with pytest.raises(ValueError, match=message):
        Service().client().dataset(data, **options)


def test_an_arrow_stream_without_pyarrow_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pandas frame needs none."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"Data of the type .*\.Stream need pyarrow: pip install pyarrow"):
        upload_of(TABLES["arrow"])
    assert upload_of(FRAME, ROLES).body.media == "text/csv"


@pytest.mark.parametrize(
    "options",
    [ROLES, {"ignore": ["kind", "when"]}, {"one_hot": ["kind", "when"]}, {"label": "when", "ignore": ["kind"]}],
)
def test_a_table_is_the_same_data_set_in_every_form(client: httpx.Client, options: Any) -> None:
    """The service stores the same content for a pandas frame and for an Arrow stream, as the id says."""
    with Client(str(client.base_url), progress=False) as glle:
        first, second = (glle.dataset(table, **options) for table in TABLES.values())
        assert first.id == second.id
        assert first.names == second.names
        assert (first.names or [])[:2] == ["x", "y"]


def test_polars_frames_are_tables() -> None:
    """Names and types stay; a timestamp is refused."""
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": [1.0, 2.0], "kind": ["u", "v"], "when": WHEN[:2].to_pydatetime().tolist()})
    with pytest.raises(ValueError, match=r"'kind', 'when' \(timestamp\[us\]\) are not numeric"):
        upload_of(frame)
    sent = pa.ipc.open_stream(b"".join(upload_of(frame, ROLES).body.pieces())).read_all()
    assert sent["kind"].to_pylist() == ["u", "v"]
