"""Apps with settings of their own, and the headers of keys made for them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from service.app import create_app
from tests.service.conftest import serving
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from worker.keys import Scope


@contextmanager
def served(stores: Stores, **settings: Any) -> Iterator[httpx.Client]:
    """Serve the same data under other settings; yield a client."""
    changed = Stores.connect(replace(stores.settings, **settings))
    with serving(create_app(changed)) as client:
        yield client
    changed.close()


def bearer(stores: Stores, tenant: str, scope: Scope = "write") -> dict[str, str]:
    """Make a key and return the header that lets in with it."""
    return {"Authorization": f"Bearer {stores.keys.create(tenant, (scope,), '', None)[1]}"}
