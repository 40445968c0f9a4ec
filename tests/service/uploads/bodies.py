"""Uploaded bodies of every format, read as the service reads them."""

from __future__ import annotations

import io
import json
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from service.uploads.limits import Limits
from service.uploads.reading import Upload
from worker.base.problems import Problem, ProblemError

if TYPE_CHECKING:
    from glle_engine.tables.table import Table

LIMITS = Limits(points=5000, features=20)
X = np.random.default_rng(0).normal(size=(6, 3))
KINDS = list("ababab")
CSV, JSON, NPY, NPZ = "text/csv", "application/json", "application/x-npy", "application/zip"
ARROW, FEATHER = "application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file"
PARQUET = "application/vnd.apache.parquet"


def read(body: bytes | str, media: str = CSV, limits: Limits = LIMITS, **options: Any) -> Table:
    """Read a body as the service does, from a file."""
    with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as out:
        file.write(body.encode() if isinstance(body, str) else body)
        file.seek(0)
        table = Upload(media, "", options, limits, tempfile.gettempdir()).read(file, out)
        assert not file.closed
    return table


def refusal(body: bytes | str, media: str = CSV, limits: Limits = LIMITS, **options: Any) -> Problem:
    """Return the problem of a refused body."""
    with pytest.raises(ProblemError) as caught:
        read(body, media, limits, **options)
    problem = caught.value.problem
    assert 400 <= problem.status < 500
    assert problem.remedy.endswith(".")
    json.dumps(problem.to_dict(), allow_nan=False)
    return problem


FORM = "multipart/form-data; boundary=b0"


def form(*parts: tuple[str, bytes]) -> bytes:
    """Return the body of a form of parts: the end of the Content-Disposition and further headers, and the content."""
    pieces = [b"--b0\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + body for head, body in parts]
    return b"\r\n".join([*pieces, b"--b0--\r\n"])


def texts(table: Table) -> tuple[Any, ...]:
    """Return names, labels, colors and ids as lists."""
    return table.names, *(None if each is None else each.tolist() for each in (table.labels, table.colors, table.ids))


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    """Return the npy file of an array."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def header(text: str, version: bytes = b"\x01\x00") -> bytes:
    """Return an npy file with a written header and no data."""
    encoded = (text + "\n").encode()
    return b"\x93NUMPY" + version + len(encoded).to_bytes(2, "little") + encoded


def npz(**members: Any) -> bytes:
    """Return the compressed npz file of arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **members)
    return buffer.getvalue()


def stream(table: Any, *, rows: int = 4, **options: Any) -> bytes:
    """Return the Arrow stream of a table, in batches of this many rows."""
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return buffer.getvalue()


def feather(table: Any) -> bytes:
    """Return the Arrow file of a table."""
    buffer = io.BytesIO()
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def parquet_file(table: Any, **options: Any) -> bytes:
    """Return the Parquet file of a table."""
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, **options)
    return buffer.getvalue()


def frame(**columns: Any) -> Any:
    """Return a table of the three features of `X` and additional columns."""
    return pa.table({"x": X[:, 0], "y": X[:, 1], "z": X[:, 2], **columns})


BOTH = pytest.mark.parametrize(("write", "media"), [(stream, ARROW), (parquet_file, PARQUET)])


def messages(table: Table) -> list[str]:
    """Return the notices of a table, in the words of HTTP."""
    return [notice["message"] for notice in table.source.get("notices", [])]
