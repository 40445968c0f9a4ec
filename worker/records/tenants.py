"""Tenants: whose something is. Ids and Redis names of one tenant are never those of another."""

from __future__ import annotations

import re

from worker.records.ids import DIGEST, digest

DEFAULT = "default"  # whoever comes without a key, and the owner of records from before there were tenants
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def is_tenant_name(text: str) -> bool:
    """Say whether a tenant may be called so; the name becomes part of Redis keys and file names."""
    return _NAME.fullmatch(text) is not None


def tenant_key(name: str, tenant: str) -> str:
    """Return the Redis name under which a tenant has what the default one has under `name`."""
    return name if tenant == DEFAULT else f"glle:tenant:{tenant}:{name.removeprefix('glle:')}"


def dataset_id(sha256: str, tenant: str) -> str:
    """Return the id of a data set of this content.

    Only the default tenant's tells the content: whoever has the same data cannot tell from it what another tenant has.
    What is named by a data set's id, posteriors and their draws, differs between tenants with it.
    """
    return "ds_" + (sha256[:DIGEST] if tenant == DEFAULT else digest(tenant, sha256))
