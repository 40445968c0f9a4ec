"""Ids of resources and jobs, and names of tenants.

Also the keys and the members of sorted sets in Redis that contain these ids and names.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

DIGEST_DIGITS = 32  # a digest has this many hexadecimal digits (128 bits), so that digests do not collide by chance
KEY_PREFIX = "glle"  # an API key is <prefix>_<id>_<secret>
KEY_ID_BYTES = 6
DEFAULT = "default"  # name of the tenant of requests without an API key
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_KINDS_BY_PREFIX = {
    "ds_": ("a data set", "datasets"),
    "post_": ("a posterior", "posteriors"),
    "emb_": ("an embedding", "embeddings"),
    "job_": ("a job", "jobs"),
}


def digest(*parts: Any) -> str:
    """Return the digest of JSON-able parts, as `DIGEST_DIGITS` hex digits."""
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST_DIGITS]


def content_sha256(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of JSON-able metadata and of names, dtypes, shapes and bytes of arrays, in hex."""
    hasher = hashlib.sha256(json.dumps(metadata, sort_keys=True, allow_nan=False).encode())
    for name, array in sorted(arrays.items()):
        hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()


def new_job_id() -> str:
    """Return a random id for a new job."""
    return "job_" + secrets.token_hex(10)


def index_member(created: str, name: str) -> str:
    """Return the member of a sorted set that stands for a record: its creation time (ISO), a space, and its name.

    Redis sorts members with equal scores by their text, and so by time.
    """
    return f"{created} {name}"


def member_name(member: str) -> str:
    """Return the name in a member that `index_member` made: the text after the creation time and the space."""
    return member.partition(" ")[2]


def text(reply: object) -> str:
    """Decode a Redis reply to text; the Redis clients return bytes, because RQ requires bytes."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def is_tenant_name(text: str) -> bool:
    """Return whether a text is a valid name of a tenant, so that it can be part of a Redis key."""
    return _TENANT.fullmatch(text) is not None


def tenant_key(name: str, tenant: str) -> str:
    """Return the Redis key that a tenant has in place of `name`, a key of the default tenant such as ``glle:jobs``."""
    return name if tenant == DEFAULT else f"glle:tenant:{tenant}:{name.removeprefix('glle:')}"


def other_kind(id_: str, collection: str) -> str:
    """Return a remedy if an id is of another kind of resource, such as a job's id where a data set's was expected.

    `collection` is the expected kind in the plural, such as ``datasets``. Returns an empty text if the id's prefix is
    the right one, or is unknown.
    """
    for start, (noun, its_collection) in _KINDS_BY_PREFIX.items():
        if id_.startswith(start) and its_collection != collection:
            needed = next((noun for noun, name in _KINDS_BY_PREFIX.values() if name == collection), "another resource")
            return f"Give the id of {needed}: {id_} is the id of {noun}."
    return ""


def dataset_id(sha256: str, tenant: str) -> str:
    """Return the id of a tenant's data set whose content has the digest `sha256`.

    Only the ids of the default tenant contain the digest. Ids of equal data therefore differ between tenants, and no
    tenant can learn from an id whether another tenant has the same data.
    """
    return "ds_" + (sha256[:DIGEST_DIGITS] if tenant == DEFAULT else digest(tenant, sha256))
