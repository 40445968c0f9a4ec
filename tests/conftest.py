"""Fixtures and helpers of the worker's and the service's tests: embedded servers and their stores."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import redis
from hypothesis import settings as hypothesis_settings
from rq.rate_limit import RateLimitRegistry

from worker.base.settings import Settings
from worker.jobs.rq_types import QUEUES, open_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.system.conftest import Limited, Up
    from worker.stores import Stores

# The files whose tests use one running service run one after the other in one process, because each start takes
# seconds. The service ends after the last of them. umap-learn compiles itself in each process, for 15 seconds.
SHARING = {
    "up": frozenset(
        (
            "tests/docs/test_examples.py",
            "tests/docs/test_operations.py",
            "tests/docs/test_shell_blocks.py",
            "tests/docs/test_tutorials.py",
            "tests/system/clients/test_client.py",
            "tests/system/clients/test_commands.py",
            "tests/system/clients/test_errors.py",
            "tests/system/clients/test_typescript.py",
            "tests/system/jobs/test_analyses.py",
            "tests/system/jobs/test_embeddings.py",
            "tests/system/jobs/test_jobs.py",
            "tests/system/jobs/test_main_job.py",
            "tests/system/operations/test_autoscaling.py",
            "tests/system/operations/test_doctor.py",
            "tests/system/operations/test_life.py",
            "tests/system/operations/test_logs.py",
            "tests/system/operations/test_storage.py",
        )
    ),
    "limited": frozenset(
        (
            "tests/system/clients/test_uploads.py",
            "tests/system/jobs/test_burst.py",
            "tests/system/jobs/test_commands.py",
            "tests/system/operations/test_traces.py",
        )
    ),
    "umap-learn": frozenset(
        (
            "tests/engine/methods/neighbor_embedding/test_starts.py",
            "tests/engine/methods/neighbor_embedding/test_umap_pacmap.py",
            "tests/engine/reliability/test_refits.py",
            "tests/engine/methods/test_every_method.py",
        )
    ),
}
GROUPS = {file: name for name, files in SHARING.items() for file in files}
WAIT_SECONDS = 60.0
Service = TypeVar("Service")

# No test asserts how long an example lasts. All else stays as in the current profile, which is another one in CI.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")


def until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Poll until `condition` is true, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def evict(stores: Stores, prefix: str) -> None:
    """Delete the keys of this version with a prefix from the cache server, like an eviction."""
    from worker.base.versions import versioned_key  # noqa: PLC0415 # engine tests need no server

    client = stores.cache.client
    for key in client.scan_iter(match=f"{versioned_key(prefix)}*", count=1000):
        client.unlink(key)


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files to processes, and the files that share a service to one of them."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 # the controller alone distributes

    class Scheduling(LoadFileScheduling):  # type: ignore[misc] # untyped
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return GROUPS.get(file, file)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check that the files that share a service are listed, and move each group behind its first file."""
    for item in items:
        for name in SHARING.keys() & set(getattr(item, "fixturenames", ())):
            assert isinstance(item, pytest.Function)
            (*_, fixture) = item._fixtureinfo.name2fixturedefs[name]
            file = _file(item)
            if fixture.baseid == "tests" and GROUPS.get(file) != name:  # not an override
                raise pytest.UsageError(f"{file} uses the service {name!r}. List it in SHARING of tests/conftest.py.")
    positions: dict[str, int] = {}
    for item in items:
        positions.setdefault(_group(item), len(positions))
    items.sort(key=lambda item: positions[_group(item)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End a shared service after the last test of its group."""
    result = yield
    if (group := _group(item)) in _RUNNING and (nextitem is None or _group(nextitem) != group):
        _RUNNING.pop(group).close()
    return result


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _group(item: pytest.Item) -> str:
    return GROUPS.get(_file(item), _file(item))


_RUNNING: dict[str, ExitStack] = {}


def shared(name: str, service: AbstractContextManager[Service]) -> Service:
    """Start the service of a group of files; it ends after the last test of the group."""
    with ExitStack() as stack:
        up = stack.enter_context(service)
        _RUNNING[name] = stack.pop_all()
    return up


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Up:
    """Run one `glle up` for the session."""
    from tests.system.conftest import running  # noqa: PLC0415 # engine tests need no server

    return shared("up", running(tmp_path_factory.mktemp("up")))


@pytest.fixture(scope="session")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Limited:
    """Run a service with few open jobs, little memory for a reader and rare heartbeats, which sends traces."""
    from tests.system.conftest import limited_service  # noqa: PLC0415 # engine tests need no server

    return shared("limited", limited_service(tmp_path_factory.mktemp("limited")))


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


@pytest.fixture
def settings(server_settings: Settings, tmp_path: Path) -> Settings:
    """Return settings with a separate data folder."""
    return replace(server_settings, data_dir=str(tmp_path))


def stored_files(stores: Stores) -> list[Path]:
    """Return the files of data sets and imported posteriors in a local store, and temporary ones."""
    folder = stores.datasets.files.bucket.local_path("data")
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def stores(settings: Settings) -> Iterator[Stores]:
    """Return connected, empty stores."""
    from worker.stores import Stores  # noqa: PLC0415 # engine tests need no server

    connected = Stores.connect(settings)
    connected.client.flushall()
    connected.cache.client.flushall()
    yield connected
    connected.close()
