"""Names of things: content-addressed where the content decides, random where it does not."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

DIGEST = 32  # hex digits: 128 bits, no collision by chance
KEY_PREFIX = "glle"  # of a bearer key: <prefix>_<id>_<secret>
KEY_ID_BYTES = 6


def digest(*parts: Any) -> str:
    """Return a hex digest of JSON-able parts; equal parts give equal digests."""
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST]


def content_sha256(told: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a digest of JSON-able members and of arrays by name, to the last bit."""
    found = hashlib.sha256(json.dumps(told, sort_keys=True, allow_nan=False).encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def posterior_id(dataset: str, spec: dict[str, Any], numbers: str) -> str:
    """Return the id of the posterior of a data set under a full specification, with the numbers of an engine."""
    return "post_" + digest(dataset, spec, numbers)


def new_job_id() -> str:
    """Return an id nobody has."""
    return "job_" + secrets.token_hex(10)


def index_member(created: str, name: str) -> str:
    """Return a member of a list index that sorts by its ISO time of creation."""
    return f"{created} {name}"


def member_name(member: str) -> str:
    """Return the name in an index member."""
    return member.partition(" ")[2]


def text(reply: object) -> str:
    """Return a string that Redis sent: the clients are byte clients, because RQ's must be."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)
