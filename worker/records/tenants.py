"""Tenant names, and the Redis names and data set ids that differ between tenants."""

from __future__ import annotations

import re

from worker.records.ids import DIGEST, digest

DEFAULT = "default"  # tenant of requests without a key
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def is_tenant_name(text: str) -> bool:
    """Return whether a text is a tenant name; the name becomes part of Redis keys and file names."""
    return _NAME.fullmatch(text) is not None


def tenant_key(name: str, tenant: str) -> str:
    """Return a tenant's Redis key for the default tenant's key `name`."""
    return name if tenant == DEFAULT else f"glle:tenant:{tenant}:{name.removeprefix('glle:')}"


def dataset_id(sha256: str, tenant: str) -> str:
    """Return the id of a tenant's data set with this content.

    Only the default tenant's id shows the digest. So equal data does not reveal the data sets of another tenant.
    """
    return "ds_" + (sha256[:DIGEST] if tenant == DEFAULT else digest(tenant, sha256))
