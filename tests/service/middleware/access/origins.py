"""Requests of pages of other origins."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from service.app import create_app
from tests.service.conftest import serving
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from worker.base.settings import Settings

LAB = "https://lab.example.org"


@contextmanager
def allowing(settings: Settings, origins: str) -> Iterator[httpx.Client]:
    """Serve with these origins allowed."""
    stores = Stores.connect(replace(settings, cors_origins=origins))
    with serving(create_app(stores)) as client:
        yield client
    stores.close()
