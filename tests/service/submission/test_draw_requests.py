"""Single draws by real workers: a slow one is a job, delays no other tenant, is made once, and has bounded memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import manifolds
from service.submission import waiting
from tests.conftest import until
from tests.service.tenants import bearer
from tests.worker.execution.workers import worker
from worker.execution import process_guard
from worker.jobs.draw_stream import DrawRequests
from worker.records.draws import QUICK_SECONDS
from worker.records.ids import text
from worker.records.job import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from numpy.typing import NDArray

    from worker.stores import Stores

SLOW = 151  # points of the posterior whose draws are slow
pytestmark = pytest.mark.skipif(not process_guard.LINUX, reason="workers of the tests need Linux")

# A program of the workers: counts the lane groups that samplers draw, and calls `slow` for those of `SLOW` points.
COUNTED = """
import time
from worker.execution import sampler
from worker.stores import process_stores
make = sampler.make_draws
def counted(posterior, keys):
    client = process_stores().client
    client.hincrby("groups", f"{posterior.n_points}:{keys[0].index // 4}", 1)
    if posterior.n_points == 151:
        slow(client)
    return make(posterior, keys)
sampler.make_draws = counted
"""
BLOCKED = f"""{COUNTED}
def slow(client):
    while not client.exists("go"):
        time.sleep(0.01)
"""


def busy(seconds: float) -> str:
    """Return a program of workers whose slow draws take so much time of the processor."""
    return f"""{COUNTED}
def slow(client):
    until = time.thread_time() + {seconds}
    while time.thread_time() < until:
        sum(range(1000))
"""


@contextmanager
def workers(stores: Stores, count: int, before: str = "", **settings: Any) -> Iterator[None]:
    """Run some workers on the data of an app."""
    with ExitStack() as stack:
        for number in range(count):
            stack.enter_context(worker(replace(stores.settings, **settings), f"drawing{number}", before))
        yield


def fit_posterior(client: httpx.Client, headers: dict[str, str], X: NDArray[np.float64]) -> str:
    """Have a worker fit data; return the path of the posterior."""
    dataset = client.post("/v1/datasets", json={"data": X.tolist()}, headers=headers).json()["id"]
    job = client.post("/v1/posteriors", json={"dataset": dataset}, headers=headers).json()
    path = f"/v1/posteriors/{job['posterior']}"
    until(lambda: client.get(path, headers=headers).status_code == 200)
    return path


def sheet(n: int) -> NDArray[np.float64]:
    """Return n points whose draws are quick."""
    return manifolds.make("s_curve", n, seed=1).X


def groups(stores: Stores, n: int) -> dict[str, int]:
    """Return how often samplers drew each lane group of the posterior of n points."""
    counts = {text(name): int(count) for name, count in stores.client.hgetall("groups").items()}
    return {name.partition(":")[2]: count for name, count in counts.items() if name.startswith(f"{n}:")}


def test_a_draw_of_a_dense_posterior_is_a_job_at_once(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense factors take longer than samplers may: a task of the process for long work makes the draw."""
    record = stores.posteriors.fetch("post_1")
    stores.posteriors.delete("post_1")
    stores.posteriors.create(replace(record, draw_cost={**record.draw_cost, "seconds": QUICK_SECONDS + 0.1}))
    monkeypatch.setattr(DrawRequests, "send", lambda *_, **__: pytest.fail("no sampler should draw it"))
    answer = client.get(f"{posterior}/draws/0", params={"wait": 1})
    assert answer.status_code == 202
    assert stores.jobs.fetch(answer.json()["id"]).queue == BATCH


def test_a_tenant_with_slow_draws_leaves_others_a_sampler(guarded_client: httpx.Client, stores: Stores) -> None:
    """Many slow draws wait for one of two samplers; another tenant's draws are made meanwhile."""
    wait = {"wait": 60}  # the machine may be busy
    slow, other = bearer(stores, "slow"), bearer(stores, "other")
    with workers(stores, 2, busy(0.12)), ThreadPoolExecutor(56) as pool:
        path, quick = fit_posterior(guarded_client, slow, sheet(SLOW)), fit_posterior(guarded_client, other, sheet(150))
        until(lambda: stores.queue.live_workers() == 2)
        draws = [pool.submit(guarded_client.get, f"{path}/draws/{4 * i}", params=wait, headers=slow) for i in range(56)]
        until(lambda: sum(groups(stores, SLOW).values()) >= 4)  # each sampler has seen how slow they are
        # Each quick draw waits for two slow batches of its sampler at most: 16 of the 20 draws that each has left.
        for index in range(0, 8, 4):
            assert guarded_client.get(f"{quick}/draws/{index}", params=wait, headers=other).status_code == 200
        assert not all(draw.done() for draw in draws)
        assert [draw.result().status_code for draw in draws] == [200] * 56


def test_a_draw_in_work_is_made_once(
    guarded_client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose draw is being made is not sent again, however often its client looks."""
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.05)
    sent: list[str] = []
    looks: list[bool] = []
    send, is_pending = DrawRequests.send, DrawRequests.is_pending

    async def record(requests: DrawRequests, *request: Any) -> str:
        sent.append(entry := await send(requests, *request))
        return entry

    async def look(requests: DrawRequests, entry: str) -> bool:
        looks.append(pending := await is_pending(requests, entry))
        return pending

    monkeypatch.setattr(DrawRequests, "send", record)
    monkeypatch.setattr(DrawRequests, "is_pending", look)
    headers = bearer(stores, "one")
    with workers(stores, 2, BLOCKED), ThreadPoolExecutor(1) as pool:
        path = fit_posterior(guarded_client, headers, sheet(SLOW))
        until(lambda: stores.queue.live_workers() == 2)
        draw = pool.submit(guarded_client.get, f"{path}/draws/0", headers=headers)
        until(lambda: looks.count(True) > 5)
        stores.client.set("go", 1)
        assert draw.result().status_code == 200
        assert groups(stores, SLOW) == {"0": 1}
        assert len(sent) == 1
        assert not any(job for _, job in stores.for_tenant("one").jobs.iterate(kind="draws")), "no job took it over"


def test_a_draw_slower_than_expected_makes_the_next_ones_jobs(client: httpx.Client, stores: Stores) -> None:
    """After a draw that took too long, further draws of this posterior are made by jobs, not by samplers."""
    with workers(stores, 1, busy(1.1)):
        path = fit_posterior(client, {}, sheet(SLOW))
        assert client.get(f"{path}/draws/0").status_code == 200
        record = stores.posteriors.fetch(path.rpartition("/")[2])
        assert record.single_draw_seconds < 0.1
        assert client.get(f"{path}/draws/4").status_code == 200
        assert len(client.get("/v1/jobs", params={"kind": "draws"}).json()["items"]) == 1
        assert groups(stores, SLOW) == {"0": 1}


def test_a_draw_beyond_the_memory_is_refused_and_others_go_on(client: httpx.Client, stores: Stores) -> None:
    """Factors larger than GLLE_METHOD_BYTES end their request with a problem, in the sampler and in a work-horse."""
    with workers(stores, 1, method_bytes=2**26):
        dense = fit_posterior(client, {}, np.random.default_rng(0).normal(size=(1500, 20)))
        quick = fit_posterior(client, {}, sheet(150))
        many = partial(client.post, f"{dense}/draws", json={"n_draws": 8}, params={"wait": 20})
        for request in (partial(client.get, f"{dense}/draws/0"), many, partial(client.get, f"{dense}/draws/1")):
            answer = request()
            assert (answer.status_code, answer.json()["type"]) == (422, "urn:glle:problem:too-much-memory")
            assert "GLLE_METHOD_BYTES" in answer.json()["remedy"]
        assert client.get(f"{quick}/draws/0").status_code == 200
