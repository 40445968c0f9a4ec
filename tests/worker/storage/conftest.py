"""Stores with an object store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from worker.base.settings import Settings


@pytest.fixture(params=["file", "memory"])
def tiered(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path, stores: Stores) -> Iterator[Stores]:
    """Return stores with an object store and an empty cache whose half is 2 MB."""
    url = f"file://{tmp_path}/objects" if request.param == "file" else f"memory://{tmp_path.name}"
    connected = Stores.connect(replace(settings, store_url=url, cache_bytes=4 * 2**20))
    yield connected
    connected.close()
