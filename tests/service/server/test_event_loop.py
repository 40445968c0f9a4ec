"""The event loop of an API process: requests that wait for Redis hold no thread, and delay no other request."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
from anyio import to_thread

import worker.stores
from service.app import create_app
from tests.worker.connections.leaks import connections, greenlets, require_all_returned
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from fastapi import FastAPI

SECONDS = 60.0  # no request of these tests ends by its time


@asynccontextmanager
async def asking(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of an app on the running event loop."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=SECONDS) as client:
        yield client


def test_requests_are_answered_while_all_threads_are_busy(stores: Stores, app: FastAPI, drawn: str) -> None:
    """States of jobs, waits, records, new jobs and refusals need no thread."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    assert not stores.room.is_full

    async def run() -> list[int]:
        limiter = to_thread.current_default_thread_limiter()
        for number in range(int(limiter.total_tokens)):
            limiter.acquire_on_behalf_of_nowait(number)
        stores.room._look_again = float("inf")  # of the disk, by a thread
        async with asking(app) as client, asyncio.timeout(SECONDS):
            answers = [
                await client.get(f"/v1/jobs/{job.id}"),
                await client.get(f"/v1/jobs/{job.id}?wait=0.2"),
                await client.get("/v1/jobs/job_0"),
                await client.get(drawn),
                await client.get("/v1/posteriors/post_0"),
                await client.get("/v1/info"),
                await client.get("/livez"),
                await client.post(f"{drawn}/draws", json={"count": 20}),
                await client.get(f"{drawn}/draws/17?wait=0.2"),
                await client.patch(drawn, json={"name": "new"}),
                await client.delete(f"/v1/jobs/{job.id}"),
                await client.delete(drawn),
            ]
        return [answer.status_code for answer in answers]

    try:
        assert asyncio.run(run()) == [200, 200, 404, 200, 404, 200, 200, 202, 202, 200, 200, 204]
    finally:
        stores.room._look_again = 0.0


def test_a_silent_server_delays_only_requests_that_need_it(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """More requests than connections wait for it; others are answered before all of them; then all get 503."""
    monkeypatch.setattr(worker.stores, "ANSWER_SECONDS", SECONDS)

    async def run() -> None:
        ended = asyncio.Event()

        async def stay_silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await ended.wait()
            writer.close()

        server = await asyncio.start_server(stay_silent, "127.0.0.1", 0)
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        silent = Stores.connect(replace(stores.settings, redis_url=url, cache_url=url))
        silent.keys._is_guarded, silent.keys._next_look = False, math.inf  # read before
        async with asking(create_app(silent)) as client, asyncio.timeout(SECONDS):
            paths = ["/v1/jobs/job_0?wait=9", "/v1/posteriors/post_0/draws/1", "/v1/posteriors/post_0"] * 40
            tasks = [asyncio.create_task(client.get(path)) for path in paths]
            while not is_exhausted(silent):  # noqa: ASYNC110 # the pool's state
                await asyncio.sleep(0.01)
            for path in ("/livez", "/v1/methods"):
                assert (await client.get(path)).status_code == 200
            assert not any(task.done() for task in tasks)
            server.close()
            ended.set()
            answers = await asyncio.gather(*tasks)
            assert {answer.status_code for answer in answers} == {503}
            assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
            require_all_returned(silent.client)
        silent.close()

    asyncio.run(run())
    assert greenlets() == 0


def is_exhausted(stores: Stores) -> bool:
    """Return whether all connections of the running event loop are in use."""
    pool: Any = stores.client.connection_pool
    return asyncio.get_running_loop() in pool._loops and connections(stores.client)._free.locked()


def test_a_request_that_is_given_up_leaves_nothing(stores: Stores, app: FastAPI) -> None:
    """Requests that are cancelled at any moment leave no connection, no reply and no greenlet behind."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)

    async def run() -> None:
        async with asking(app) as client, asyncio.timeout(SECONDS):
            assert (await client.get(f"/v1/jobs/{job.id}")).status_code == 200
            for steps in range(40):
                tasks = [asyncio.create_task(client.get(f"/v1/jobs/{job.id}?wait=9")) for _ in range(3)]
                for _ in range(steps):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                assert all(
                    isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*tasks, return_exceptions=True)
                )
            assert (await client.get(f"/v1/jobs/{job.id}")).json()["id"] == job.id
            for _ in range(100):  # the watches end
                await asyncio.sleep(0)
            require_all_returned(stores.client)

    asyncio.run(run())
    assert greenlets() == 0
