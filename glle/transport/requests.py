"""How the client's requests look: paths, keys, arrays by content negotiation."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from glle.transport.calls import NPY, NPZ, Call
from glle.transport.sinks import FileSink, NpySink, NpzSink

Dtype = Literal["float64", "float32"]


def path_of(kind: str, id_: str, *more: str) -> str:
    """Return the path of a resource, or of something under it."""
    return "/".join(["/v1", kind, quote(id_, safe=""), *more])


def new_key() -> str:
    """Return a key that makes a POST safe to repeat."""
    return uuid.uuid4().hex


def npy_call(path: str, query: dict[str, Any], out: str | Path | None = None) -> Call:
    """Return the call for an array; with `out` it goes to that file."""
    sink = NpySink if out is None else partial(FileSink, Path(out))
    return Call("GET", path, query, accept=NPY, sink=sink)


def npz_call(path: str, query: dict[str, Any] | None = None) -> Call:
    """Return the call for several arrays."""
    return Call("GET", path, query or {}, accept=NPZ, sink=NpzSink)
