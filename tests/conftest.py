"""Fixtures and helpers of the worker's and the service's tests: embedded servers and their stores."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis
from hypothesis import settings as hypothesis_settings
from rq.rate_limit import RateLimitRegistry

from worker.base.problems import Problem, ProblemError
from worker.base.settings import Settings
from worker.jobs.rq_tasks import open_queue
from worker.records.job import QUEUES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from tests.system.conftest import Up
    from worker.records.cache_entry import Entry
    from worker.records.draws import DrawAddress
    from worker.stores import Stores

# Libraries that compile themselves in each process, for half a minute; tests are named after them.
COMPILED = ("umap", "densmap", "pacmap")
WAIT_SECONDS = 60.0

# No test asserts how long an example lasts. All else stays as in the current profile, which is another one in CI.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """Close the figures of a test, which pyplot keeps; more than 20 are a warning."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


def until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Poll until `condition` is true, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def refusal(call: Callable[..., object], *arguments: object) -> Problem:
    """Return the problem of a refused call."""
    with pytest.raises(ProblemError) as caught:
        call(*arguments)
    return caught.value.problem


def cached_draw(stores: Stores, posterior: str, key: DrawAddress) -> Entry | None:
    """Return a draw of the cache, or None; the read is counted."""
    return asyncio.run(stores.cache.read_draw(posterior, key))


def error_of(stores: Stores, job: str) -> Problem:
    """Return the problem of a failed job."""
    failed = stores.jobs.fetch(job)
    assert failed.error is not None
    assert failed.status == "failed"
    return failed.error


def in_turn(stores: Stores) -> list[str]:
    """Return the tasks that wait, interactive ones first; those behind their tenant's limit are last in a queue."""
    tasks, limits = [], RateLimitRegistry.all(stores.client)
    for name in QUEUES:
        tasks += open_queue(name, stores.client).get_job_ids()
        for limit in limits:
            if limit.key.startswith(f"{name}:"):
                tasks += limit.get_rate_limited_job_ids()
    return tasks


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the modules and the tests out of garbage collections, which would take a twentieth of the time."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests of the service, whose start takes seconds, of libraries that compile, and of each other file.

    Groups begin in this order: those of the service, the largest one, then those of the worker, which mostly wait.
    """
    items.sort(key=lambda item: ("up" not in getattr(item, "fixturenames", ()), "tests/worker/" not in item.nodeid))
    for item in items:
        file, fixtures = item.nodeid.partition("::")[0], getattr(item, "fixturenames", ())
        of_file = "compiled" if any(name in item.name for name in COMPILED) else file
        item.add_marker(pytest.mark.xdist_group("up" if "up" in fixtures else of_file))


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Run one `glle up` for the session."""
    from tests.system.conftest import running  # noqa: PLC0415 # engine tests need no server

    with running(tmp_path_factory.mktemp("up")) as started:
        yield started


@pytest.fixture(scope="session")
def server_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Start real servers for the whole session, as `glle up` does."""
    from worker.operations.embedded_redis import cache_server, queue_server  # noqa: PLC0415 # engine tests need no server

    settings = Settings(data_dir=str(tmp_path_factory.mktemp("servers")), cache_bytes=64 * 2**20, heartbeat=1)
    queue, cache = queue_server(settings), cache_server(settings)
    for server in (queue, cache):
        server.spawn()
    for server in (queue, cache):
        server.wait()
    with redis.Redis.from_url(queue.url) as client:
        client.config_set("appendfsync", "everysec")  # no test of this session needs its writes on disk
    yield replace(settings, redis_url=queue.url, cache_url=cache.url)
    for server in (queue, cache):
        server.stop()


def emptied(server_settings: Settings, folder: Path) -> Settings:
    """Empty the servers; return settings with a separate data folder."""
    for url in (server_settings.redis_url, server_settings.cache_url):
        with redis.Redis.from_url(url) as client:
            client.flushall()
    return replace(server_settings, data_dir=str(folder))


@pytest.fixture
def settings(server_settings: Settings, tmp_path: Path) -> Settings:
    """Return settings with empty servers and a separate data folder."""
    return emptied(server_settings, tmp_path)


def stored_files(stores: Stores) -> list[Path]:
    """Return the files of records in a local store, and temporary ones; the mark is left out."""
    folder = stores.datasets.files.bucket.local_path("data")
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.parent != folder / "mark")


@pytest.fixture
def stores(settings: Settings) -> Iterator[Stores]:
    """Return connected, empty stores."""
    from worker.stores import Stores  # noqa: PLC0415 # engine tests need no server

    connected = Stores.connect(settings)
    yield connected
    connected.close()
