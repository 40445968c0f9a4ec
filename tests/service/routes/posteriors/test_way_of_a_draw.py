"""The way of an uncached draw through the API stays short: the functions of the project that one request calls."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import service
from tests.service.tenants import serve_stores
from tests.worker.execution import workers
from worker.execution import process_guard

if TYPE_CHECKING:
    from worker.stores import Stores

ROOT = Path(service.__file__).parents[1]
ROOMS = tuple(f"{ROOT / room}/" for room in ("service", "worker"))
NAMELESS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
FUNCTIONS, FILES = 64, 22  # without those of the connection (`service.middleware.slow_clients`)
NPY = {"Accept": "application/x-npy"}
WARM_UPS, REPEATS = 5, 10


@pytest.mark.skipif(not process_guard.LINUX, reason="workers of the tests need Linux")
def test_an_uncached_draw_calls_few_functions(
    stores: Stores, drawn_posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several requests the one with the fewest counts: once a second a record is read again."""
    called: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOMS) and code.co_name not in NAMELESS:
            called.add((code.co_filename, code.co_qualname))

    monkeypatch.setattr(threading, "_profile_hook", note)
    seeds, found = itertools.count(1), []
    with serve_stores(stores) as client, workers.worker(stores.settings, "one"):
        for number in range(WARM_UPS + REPEATS):
            called.clear()
            client.get(f"{drawn_posterior}/draws/7?seed={next(seeds)}&wait=30", headers=NPY).raise_for_status()
            if number >= WARM_UPS:
                found.append(set(called))
    fewest = min(found, key=len)
    assert len(fewest) <= FUNCTIONS, sorted(fewest)
    assert len({file for file, _ in fewest}) <= FILES, sorted(fewest)
