"""Uploads, response bodies, results and frames of the client."""

from __future__ import annotations

import copy
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array, load_npz

import glle
from glle import Retries, UnavailableError
from glle.inputs import data_options, upload_of
from glle.transport.calls import Body, Call
from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.validation import finite_matrix
from glle_engine.methods import METHODS
from tests.client.answers import Service, npy, posterior

TABLE = pa.table({"x": [1.0]})

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, ">f8", np.uint8])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_go_as_npy(dtype: Any, order: Any) -> None:
    """The body has the values in C order, in pieces of 1 MiB, and its length is announced."""
    array = np.asarray(np.arange(700_000).reshape(-1, 7) % 251, dtype, order=order)[::2]
    upload = upload_of(array)
    parts = list(upload.body.pieces())
    assert len(parts) > 2 or array.nbytes < 2**20
    assert max(map(len, parts)) <= 2**20
    assert sum(map(len, parts)) == upload.body.length
    read = np.load(io.BytesIO(b"".join(parts)))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


def upload_body(*args: Any, **options: Any) -> bytes:
    """Return the bytes that `upload_of` sends for these arguments."""
    return b"".join(upload_of(*args, **options).body.pieces())


def members(body: bytes) -> dict[str, Any]:
    """Return the arrays of an npz body as lists."""
    with np.load(io.BytesIO(body)) as archive:
        return {name: archive[name].tolist() for name in archive.files}


def test_an_index_that_numbers_no_rows_has_the_ids() -> None:
    """Each level of an index is sent as a column with a free name; row numbers only if rows are dropped."""
    index = pd.MultiIndex.from_tuples([("u", 1), ("v", 2)], names=["k", None])
    frame = pd.DataFrame({"a": [1, 2], "k": [3, 4]}, index=index)

    def head(frame: Any, **options: Any) -> tuple[list[str], list[int]]:
        packed = json.loads(bytes(members(upload_body(frame, options))["columns"]))
        return [each["name"] for each in packed["columns"]], packed["index"]

    assert head(frame) == (["a", "k", "k_", "__index_level_1__"], [2, 3])
    assert head(frame.reset_index(drop=True)) == (["a", "k"], [])
    assert head(frame.reset_index(drop=True), missing="drop") == (["a", "k", "__index_level_0__"], [2])


def test_given_labels_and_colors_of_a_frame_are_columns_with_free_names() -> None:
    """Arrays of labels become columns that the query names; `ignore` takes names, numbers and arrays of these."""
    labeled = pd.DataFrame({"a": [1.5, 2.5], "labels": [3, 4], 0: [1, 2]})
    options: Any = {"ignore": [0], "labels": pd.Series([None, "u"], index=[1, 0]), "colors": [0.5, 0.25]}
    upload = upload_of(labeled, options)
    assert upload.query == {"labels": "labels_", "colors": "colors", "ignore": ["0"]}
    sent = members(b"".join(upload.body.pieces()))
    assert (bytes(sent["4_text"]), sent["4_lengths"]) == (b"u", [1, -1])  # in the order of the frame's index
    with pytest.raises(InvalidParameterError, match="is not the index of the data"):
        upload_of(labeled, {"labels": pd.Series(["u", "v"], index=[7, 8])})
    for ignore in (0, np.array(["0"]), pd.Index([0]), ("0",)):
        options = {"ignore": ignore}
        assert upload_of(labeled, options).query == {"ignore": ["0"]}
    for wrong in (
        {"ignore": slice(1)},
        {"ignore": np.array([True, False])},
        {"labels": 1.5},
        {"ignore": [1.5]},
        {"colors": True},
    ):
        with pytest.raises(InvalidParameterError, match=r"is not the name of a column\. Give names"):
            upload_of(labeled, wrong)  # type: ignore[arg-type] # what is tested


def test_sparse_data_go_as_scipy_saves_them() -> None:
    """A sparse matrix is sent as by `scipy.sparse.save_npz`, with the labels as a further member."""
    matrix = csr_array(np.array([[0, 1.5], [2.5, 0], [0, 0]]))
    body = upload_body(matrix.tocsc(), {"labels": ["u", "v", "w"]})
    np.testing.assert_array_equal(load_npz(io.BytesIO(body)).toarray(), matrix.toarray())
    assert members(body)["labels"] == ["u", "v", "w"]


class Endless:
    """Object with a length whose items are such objects again, as views of an AnnData are."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: object) -> Endless:
        return Endless()


def test_objects_that_only_look_like_sequences_are_refused() -> None:
    """An object whose items never end in numbers is refused before numpy reads it item by item."""
    with pytest.raises(InvalidShapeError, match=r"Endless, which is neither an array nor a sequence of rows"):
        finite_matrix(Endless())  # type: ignore[arg-type] # what is tested
    assert finite_matrix(np.ones((2, 2)).data).shape == (2, 2)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.ones((2, 2)), {"labels": "a"}, "Give a frame of pandas or polars"),
        (np.array([["a"]]), {}, "astype"),
        (np.array([[object()]]), {}, "astype"),
        ("data.doc", {}, "its name does not end in .npy"),
        (Endless(), {}, r"Endless, which is neither an array nor a sequence of rows\. Give an array"),
        (np.ones((2, 2)), {"labels": ["u"]}, r"labels have shape \(1,\); the data have 2 rows"),
        (csr_array(np.eye(3)), {"labels": np.ones((3, 2))}, r"labels have shape \(3, 2\)"),
        (np.ones((2, 2)), {"colors": ["u", "v"]}, "colors are of type <U1"),
        ("data.csv", {"labels": ["u"]}, "labels was given as an array"),
        (TABLE, {"labels": [1, 2]}, r"labels have shape \(2,\); the data have 1 rows"),
        (type("LazyFrame", (), {"collect_schema": None, "lazy": None})(), {}, r"Give data\.collect\(\)"),
        (type("ndarray", (), {"__cuda_array_interface__": {}, "get": None})(), {}, r"Give data\.get\(\)"),
        (type("Tensor", (), {"is_cuda": True, "cpu": None})(), {}, r"Give data\.cpu\(\)\.numpy\(\)"),
        (type("Raw", (), {"to_adata": None, "var_names": []})(), {}, r"Give adata\.raw\.to_adata\(\)"),
    ],
)
def test_lossy_uploads_are_refused(data: Any, options: Any, message: str) -> None:
    """Data that a body cannot hold exactly are refused before a request, with the value and the remedy."""
    with pytest.raises(ValueError, match=message):
        upload_of(data, options)


@pytest.mark.parametrize("kind", [np.array, list, pd.Series])
def test_labels_and_colors_go_with_an_array_in_one_npz(kind: Callable[[Any], Any]) -> None:
    """Words, numbers and bools may be labels; a missing label is sent as an empty text; the array goes in pieces."""
    X, words = np.arange(6.0).reshape(3, 2), kind(["u", "v", "w"])
    stored = members(upload_body(X, {"labels": words, "colors": kind([1, 2, 3])}))
    assert stored == {"data": X.tolist(), "labels": ["u", "v", "w"], "colors": [1, 2, 3]}
    for labels, expected in (([None, "v", float("nan")], ["", "v", ""]), ([True, False, True], [1, 0, 1])):
        assert members(upload_body(X, {"labels": labels})) == {"data": X.tolist(), "labels": expected}
    large = np.arange(150_000.0).reshape(-1, 4)
    pieces = list(upload_of(large, {"labels": np.zeros(len(large), int)}).body.pieces())
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= 2**20
    assert members(b"".join(pieces))["data"] == large.tolist()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(600.0).reshape(10, 30, 2),
        np.ones((0, 2)),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros(2**21 + 1),
    ],
    ids=["draws", "empty", "fortran", "on disk"],
)
def test_npy_is_received_in_pieces(array: Any) -> None:
    """The received array has the type and the values of the body."""
    received = _receive(Call.npy("/"), npy(array))
    assert received.dtype == array.dtype
    np.testing.assert_array_equal(received, array)


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body + b"x", lambda body: body[:9]])
def test_npy_of_another_length_is_refused(change: Callable[[bytes], bytes]) -> None:
    """A body shorter or longer than its header says is an error."""
    with pytest.raises(ValueError, match=r"more bytes|read all data|EOF"):
        _receive(Call.npy("/"), change(npy(np.ones(4))))


def test_objects_are_never_unpickled() -> None:
    """A response whose array holds Python objects is refused, as npy and in npz."""
    archive = io.BytesIO()
    np.savez(archive, x=np.array([{}], object))
    for call, body in ((Call.npy("/"), npy(np.array([{}], object))), (Call.npz("/"), archive.getvalue())):
        with pytest.raises(ValueError, match="allow_pickle=False"):
            _receive(call, body)


def _receive(call: Call, body: bytes | Iterator[bytes]) -> Any:
    """Return what a call makes of a response with this body."""
    session = Service(httpx.Response(200, content=body)).client(Retries(deadline=0))._session
    return session.run(session.send(call)).body


def test_file_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    """A download that breaks off leaves the old file; no temporary file remains in either case."""
    path, body = tmp_path / "draws.npy", npy(np.arange(6.0))
    path.write_text("before")

    def torn() -> Iterator[bytes]:
        yield body[:50]
        raise httpx.ReadError("gone")

    with pytest.raises(UnavailableError, match="gone"):
        _receive(Call.npy("/", out=path), torn())
    assert (path.read_text(), list(tmp_path.iterdir())) == ("before", [path])
    array = _receive(Call.npy("/", out=path), body)
    np.testing.assert_array_equal(array, np.arange(6.0))
    assert isinstance(array, np.memmap)
    assert list(tmp_path.iterdir()) == [path]


def test_embeddings_become_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames have the index of the uploaded frame, and the number of each draw as a further level."""
    index = pd.Index(["u", "v", "w"], name="name")
    metadata: Any = {"id": "post_1", "n": 3}
    with_index = Service().client()._session.build("posterior", metadata, index)
    frame = with_index.frame(np.arange(6.0).reshape(3, 2))
    assert (list(frame.columns), list(frame.index), frame.loc["v", "y2"]) == (["y1", "y2"], ["u", "v", "w"], 3.0)
    many = with_index.frame(np.arange(12.0).reshape(2, 3, 2), first=5)
    assert (many.index.names, many.loc[(6, "w"), "y1"]) == (["draw", "name"], 10.0)
    with pytest.raises(ValueError, match="shape"):
        with_index.frame(np.ones(3))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        with_index.frame(np.ones((3, 2)))


def test_results_have_arrays_and_values_by_name() -> None:
    """Arrays and values are attributes; the error of a missing name lists the existing ones."""
    content = {"scale": 1.0, "arrays": {"spread": {"shape": [2], "dtype": "float32", "data": [1.0, 2.0]}}}
    service = Service(httpx.Response(200, json=content))
    summary = posterior(service.client()).summary(10)
    assert (summary.spread.dtype, summary.spread.tolist(), summary.scale) == (np.float32, [1.0, 2.0], 1.0)
    assert copy.copy(summary).spread.tolist() == [1.0, 2.0]
    assert repr(summary) == "Result(spread: float32 (2,), scale, notes)"
    with pytest.raises(AttributeError, match="It has spread, scale"):
        _ = summary.consensus


def test_numpy_values_are_json() -> None:
    """Scalars and arrays of numpy become numbers and lists; other objects are refused with their type."""
    body = Body.of_json({"k": np.int64(9), "reg": np.float32(0.5), "on": np.bool_(1), "scales": np.arange(2)})
    assert json.loads(b"".join(body.pieces())) == {"k": 9, "reg": 0.5, "on": True, "scales": [0, 1]}
    with pytest.raises(TypeError, match=r"of type object is not a JSON value: give a number"):
        Body.of_json({"k": object()})
    with pytest.raises(TypeError, match="a service knows methods by name"):
        Body.of_json({"method": lambda X: X})


def test_misspelt_options_are_refused_before_an_upload() -> None:
    """The error proposes the similar option; no method's parameter is mistaken for an option of the data."""
    with pytest.raises(ValueError, match=r"no option lable=\. Did you mean labels="):
        glle.Client("http://127.0.0.1:9").embed(TABLE, "pca", lable="cluster")
    with pytest.raises(ValueError, match=r"no option n_neighbours=\. Did you mean n_neighbors="):
        glle.Client("http://127.0.0.1:9").fit(TABLE, n_neighbours=5)  # type: ignore[call-arg] # what is tested
    for method in METHODS.values():
        assert data_options(dict.fromkeys(method.spec.parameters()))[0] == {}


def test_a_column_is_an_array() -> None:
    """An Arrow array of numbers is sent as a vector, not as a table."""
    body = b"".join(upload_of(pa.chunked_array([[1.0, 2.0]])).body.pieces())
    assert np.load(io.BytesIO(body)).tolist() == [1.0, 2.0]
