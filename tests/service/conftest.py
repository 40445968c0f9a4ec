"""Fixtures of the app with real servers and real HTTP, without workers."""

from __future__ import annotations

import asyncio
import csv
import io
import logging
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
import uvicorn
from fastapi.routing import _EffectiveRouteContext

import glle_engine
from glle_engine import FitSpec, manifolds
from glle_engine.tables.table import Table
from service.app import create_app
from service.cli.main import listen
from service.server.http_protocol import HttpProtocol
from service.uploads.sandbox import processes
from tests.conftest import until
from tests.service.schemas.bodies import CheckedClient
from worker.base.settings import Settings
from worker.execution import tasks
from worker.execution.draws import draw_entries, make_draws
from worker.jobs.rq_tasks import fetch_tasks
from worker.observability.live_workers import WorkerState, announce
from worker.operations.embedded_redis import EmbeddedRedis
from worker.records.draws import DrawAddress
from worker.records.stored_file import StoredFile
from worker.storage.posteriors import ARRAYS, PosteriorRecord, posterior_id
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastapi import FastAPI
    from fastapi.routing import APIRoute, _RouterIncludeContext
    from numpy.typing import NDArray

    from glle_engine import Posterior
    from worker.base.settings import Settings


class _Server(uvicorn.Server):
    """Server that looks often whether it should exit, because each of its tests waits for that."""

    async def main_loop(self) -> None:
        """Serve until it should exit."""
        while not await self.on_tick(0):  # noqa: ASYNC110 # uvicorn has no event
            await asyncio.sleep(0.02)


@contextmanager
def serving(app: FastAPI, root_path: str = "") -> Iterator[httpx.Client]:
    """Serve an app from a thread; yield a client that compares each response with the contract."""
    with listen("127.0.0.1", 0) as sock:
        server = _Server(
            uvicorn.Config(
                app,
                log_level="critical",
                lifespan="off",
                http=HttpProtocol,
                timeout_keep_alive=75,
                proxy_headers=False,
                root_path=root_path,
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        until(lambda: server.started)
        try:
            with CheckedClient(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=30) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def embedded_redis(folder: Path, *options: str) -> Iterator[EmbeddedRedis]:
    """Run another Redis server while the context lasts."""
    server = EmbeddedRedis(folder, options)
    server.spawn()
    server.wait()
    try:
        yield server
    finally:
        server.stop()


def register_worker(stores: Stores, name: str = "one", **members: Any) -> None:
    """Register a live worker."""
    versions = {"engine": glle_engine.__version__, "numbers": glle_engine.NUMBERS}
    state = {"host": "here", "busy": 0, "threads": "1", **versions, **members}
    announce(stores.client, stores.settings, WorkerState(name=name, **state))


def task_metadata_of(stores: Stores, id_: str) -> dict[str, str]:
    """Return the request's metadata in the record of a task."""
    (task,) = fetch_tasks(stores.client, [id_])
    assert task is not None
    return task.meta


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    """Restore the root logger, because commands configure it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture(scope="session", autouse=True)
def _authorities() -> Iterator[None]:
    """Load the certificate authorities once: each HTTP client would read their file, and no test needs them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _routes() -> Iterator[None]:
    """Resolve the dependencies of each route once: each app of a test would resolve the same ones, for 0.2 s."""
    resolve = _EffectiveRouteContext.from_api_route
    resolved: dict[tuple[object, ...], _EffectiveRouteContext] = {}

    def once(*, original_route: APIRoute, include_context: _RouterIncludeContext) -> _EffectiveRouteContext:
        shared = (each.dependency for each in include_context.dependencies)
        key = (id(original_route), include_context.prefix, *shared)
        if key not in resolved:
            resolved[key] = resolve(original_route=original_route, include_context=include_context)
        return resolved[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_EffectiveRouteContext, "from_api_route", once)
        yield


@cache
def _fork_server() -> processes._ForkServer:
    return processes._ForkServer()


def connected_app(stores: Stores) -> FastAPI:
    """Return an app whose readers share their fork server with other apps, because each start takes half a second."""
    app = create_app(stores)
    app.state.readers._server = _fork_server()
    return app


@pytest.fixture(scope="session", autouse=True)
def _readers() -> Iterator[None]:
    """Stop the fork server of the apps."""
    yield
    _fork_server().close()


@pytest.fixture(scope="session")
def _service(
    server_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stores, FastAPI, httpx.Client]]:
    """App of the session; starting and stopping it takes longer than most tests."""
    stores = Stores.connect(replace(server_settings, data_dir=str(tmp_path_factory.mktemp("data"))))
    app = connected_app(stores)
    with serving(app) as client:
        yield stores, app, client
    stores.close()


@pytest.fixture
def stores(_service: tuple[Stores, FastAPI, httpx.Client], monkeypatch: pytest.MonkeyPatch) -> Stores:
    """The app's stores, emptied, which tasks use that run in the process of a test."""
    stores, app, _ = _service
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    app.state.answer_cache.clear()
    app.state.recent_posteriors.clear()
    app.state.metrics.drain()
    stores.counts.clear()
    stores.client.flushall()
    stores.cache.client.flushall()
    shutil.rmtree(stores.settings.data_dir, ignore_errors=True)
    stores.mark.__init__(stores.client, stores.datasets.files.bucket)  # type: ignore[misc] # as a new process
    stores.keys.__init__(stores.client, stores.mark)  # type: ignore[misc] # as a new process
    return stores


@pytest.fixture
def client(stores: Stores, _service: tuple[Stores, FastAPI, httpx.Client]) -> httpx.Client:
    """A client of the app."""
    return _service[2]


@pytest.fixture(scope="session")
def _guarded_service(_service: tuple[Stores, FastAPI, httpx.Client]) -> Iterator[tuple[FastAPI, httpx.Client]]:
    """App of the session on the same data that requires keys."""
    connected = Stores.connect(replace(_service[0].settings, auth="required"))
    app = connected_app(connected)
    with serving(app) as client:
        yield app, client
    connected.close()


@pytest.fixture
def guarded_client(stores: Stores, _guarded_service: tuple[FastAPI, httpx.Client]) -> httpx.Client:
    """A client of an app that requires keys."""
    _guarded_service[0].state.answer_cache.clear()
    _guarded_service[0].state.recent_posteriors.clear()
    return _guarded_service[1]


@pytest.fixture
def app(stores: Stores, _service: tuple[Stores, FastAPI, httpx.Client]) -> FastAPI:
    """The app."""
    return _service[1]


@cache
def data_and_posterior() -> tuple[NDArray[np.float64], Posterior]:
    """Return the data of `drawn_posterior` and their posterior."""
    X = manifolds.make("s_curve", 150, seed=1).X
    return X, glle_engine.fit(X)


def posterior_record(sha256: str = "0" * 64, **members: Any) -> PosteriorRecord:
    """Return the record of a posterior in three dimensions, as a worker makes it, with the digest of its arrays."""
    record: dict[str, Any] = {
        "id": "post_1", "d": 3, "spec": FitSpec(n_neighbors=10).to_dict(), "diagnostics": {"notes": []},
        "draw_cost": {"seconds": 0.01, "each_seconds": 0.004, "bytes": 1e7}, "seconds": 0.1, "eigenvalues": [],
        "arrays": {}, "nbytes": 0, "job": "job_1", "created": "now", "file": StoredFile("data/1/entry", 1, "0" * 64),
        "provenance": {"numbers": glle_engine.NUMBERS, ARRAYS: sha256},
    }  # fmt: skip
    return PosteriorRecord(**record | members)


def store_posterior(stores: Stores, dataset: str, posterior: Posterior, draws: int, **members: Any) -> str:
    """Store a posterior and its first draws as a worker does; return its id."""
    id_ = posterior_id(dataset, FitSpec(n_neighbors=10, landmarks="all").to_dict())
    shapes = {name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in posterior.arrays().items()}
    members = {"arrays": shapes, "diagnostics": posterior.diagnostics.to_dict(), **members}
    members |= {"dataset": dataset, "n": posterior.n_points, "eigenvalues": posterior.eigenvalues.tolist()}
    file, sha256 = stores.posteriors.write(posterior)
    stores.posteriors.create(posterior_record(sha256, id=id_, file=file, **members))
    if keys := [DrawAddress(0, i, 1.0, "posterior", "procrustes") for i in range(draws)]:
        stores.cache.put_draws(id_, draw_entries(keys, *make_draws(posterior, keys)))
    return id_


@pytest.fixture
def drawn_posterior(stores: Stores) -> str:
    """The path of a posterior with draws 0 to 3 in the cache, as from a worker."""
    X, posterior = data_and_posterior()
    dataset, _ = stores.datasets.add(Table(values=X, source={"kind": "test"}))
    return f"/v1/posteriors/{store_posterior(stores, dataset.id, posterior, 4)}"


X = np.random.default_rng(0).normal(size=(40, 3))


def upload(client: httpx.Client, values: Any = X) -> str:
    """Upload values as npy and return the id."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    headers = {"content-type": "application/x-npy"}
    answer = client.post("/v1/datasets", content=buffer.getvalue(), headers=headers)
    assert answer.status_code in {200, 201}, answer.text
    id_ = answer.json()["id"]
    assert isinstance(id_, str)
    return id_


def all_items(client: httpx.Client, path: str, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the items of all pages of a list."""
    url = httpx.URL(path).copy_merge_params({"limit": limit})
    while True:
        payload = client.get(url).raise_for_status().json()
        yield from payload["items"]
        if payload["next"] is None:
            return
        url = url.copy_merge_params({"cursor": payload["next"]})


def csv_rows(answer: httpx.Response) -> list[dict[str, str]]:
    """Return the rows of a CSV response."""
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def check_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a response is this problem, and return it."""
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == "urn:glle:problem:" + code
    return problem
