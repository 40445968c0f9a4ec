"""Stores with an object store, and a full queue server."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import MemoryStore

from worker.storage.object_store import backend
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from worker.base.settings import Settings


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let URLs that begin with ``memory://`` be remote stores in the memory of this process."""
    stores: dict[str, MemoryStore] = {}
    real = backend._open

    def open_store(url: str, *options: Any) -> Any:
        return stores.setdefault(url, MemoryStore()) if url.startswith("memory:") else real(url, *options)

    monkeypatch.setattr(backend, "_open", open_store)


@pytest.fixture
def remote_stores(settings: Settings, tmp_path: Path, stores: Stores) -> Iterator[Stores]:
    """Return empty stores with a remote object store."""
    del stores  # it empties the servers
    connected = Stores.connect(replace(settings, store_url=f"memory://{tmp_path.name}"))
    yield connected
    connected.close()


@contextmanager
def fill_memory(stores: Stores, share: float) -> Iterator[None]:
    """Fill the queue server's memory to a share of its limit, during the context."""
    before = str(stores.client.config_get("maxmemory")["maxmemory"])
    stores.client.setbit("ballast", 2**26 - 1, 0)  # 8 MB, in a buffer that does not shrink
    stores.client.config_set("maxmemory", int(int(stores.client.info("memory")["used_memory"]) / share))
    stores.room._look_again = 0.0
    try:
        yield
    finally:
        stores.client.config_set("maxmemory", before)
        stores.client.delete("ballast")
        stores.room._look_again = 0.0
