"""Redis commands of a single draw and of a job of many draws, counted by MONITOR on both servers.

One API process answers, because the client has one connection; two workers share the shards of a job.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.system.arrays import get_array
from tests.system.conftest import fitted, synthetic
from tests.system.monitor import Commands, Cost, cost, monitored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.system.conftest import Up

N = 1_000
LANES = 4  # draws of a lane group
SINGLE, SINGLE_INNER = 12, 15
JOB_DRAWS, JOB = 64, 160  # RQ sends some 60 for a task, of which a third when its work-horse connects
GROUP = 4  # commands of each further lane group of a job: write and read it, and its share of those of its shard
HASH = 3  # commands on the cache for a lane group: write it, read it; prepare the hashes of its shard
SINGLES, JOBS, ATTEMPTS = 20, 2, 3
LOOK = "cache: XPENDING glle:draws:*"  # of the samplers, for requests of dead ones, once in ten seconds
IDLE = 4.0  # commands a second of a service without requests, between the heartbeats
CALM_SECONDS = 4.0  # counters are written every few seconds, and count for the operations before

seeds = itertools.count(1)


@pytest.fixture(scope="module")
def client(limited: Up) -> Iterator[httpx.Client]:
    """Return a client with one open connection."""
    with httpx.Client(base_url=limited.url, timeout=60) as http:
        yield http


@pytest.fixture(scope="module")
def posterior(client: httpx.Client) -> str:
    """Return the path of a fitted posterior that has been drawn from."""
    path = fitted(client, synthetic(client, N, seed=30))
    for _ in range(4):  # all processes open their connections, and both workers load the posterior
        single(client, path)
        job(client, path, 4 * LANES)
    return path


@pytest.fixture(scope="module")
def idle(limited: Up, posterior: str) -> Commands:
    """Return the commands of a service without requests."""
    del posterior
    time.sleep(CALM_SECONDS)
    return window(limited, lambda: None)


def window(up: Up, do: Callable[[], object]) -> Commands:
    """Count the commands during a call and its late writes."""
    with monitored(queue=up.redis_url("GLLE_REDIS_URL"), cache=up.redis_url("GLLE_CACHE_URL")) as commands:
        do()
        time.sleep(CALM_SECONDS)
    return commands


def single(client: httpx.Client, posterior: str) -> None:
    """Read one uncached draw, the first of its lane group."""
    assert get_array(client, f"{posterior}/draws/0", seed=next(seeds), wait=30).shape == (N, 2)


def job(client: httpx.Client, posterior: str, count: int) -> None:
    """Run a job of uncached draws, and read its complete result."""
    record = client.post(f"{posterior}/draws?wait=60", json={"count": count, "seed": next(seeds)}).json()
    while record["status"] in {"queued", "running"}:
        record = client.get(f"/v1/jobs/{record['id']}?wait=60").json()
    assert record["status"] == "succeeded"
    assert get_array(client, f"/v1/jobs/{record['id']}/result").shape == (count, N, 2)


def counted(up: Up, idle: Commands, times: int, do: Callable[[], object]) -> Cost:
    """Return the commands of one repetition, without the samplers' regular look."""
    found = cost(window(up, lambda: [do() for _ in range(times)]), idle, times)
    return Cost({what: count for what, count in found.sent.items() if what != LOOK}, found.inner)


def test_an_idle_service_sends_few_commands(limited: Up, idle: Commands) -> None:
    """No process polls: samplers wait two seconds at a time. Heartbeats may fall in a window, but not in all."""
    windows = [idle]
    while (found := min(sum(commands.sent.values()) / commands.seconds for commands in windows)) > IDLE:
        assert len(windows) < ATTEMPTS, f"{found:.1f} commands a second: {windows[-1].sent}"
        windows.append(window(limited, lambda: None))


def test_single_draw_sends_few_commands(limited: Up, client: httpx.Client, posterior: str, idle: Commands) -> None:
    """An uncached draw by GET, in all processes together, with its share of late writes."""
    found = counted(limited, idle, SINGLES, lambda: single(client, posterior))
    is_cheap = found.total <= SINGLE and found.total_inner <= SINGLE_INNER
    assert is_cheap, f"an uncached draw: {found}"


@pytest.mark.timeout(300)  # up to six measurements
def test_job_sends_few_commands(limited: Up, client: httpx.Client, posterior: str, idle: Commands) -> None:
    """A job from POST to its complete result; each further lane group costs as many as promised.

    A worker that is slow for a time looks at its tasks more often, so the least of some measurements counts.
    """
    groups = JOB_DRAWS / LANES
    for _ in range(ATTEMPTS):
        found = counted(limited, idle, JOBS, lambda: job(client, posterior, JOB_DRAWS))
        twice = counted(limited, idle, JOBS, lambda: job(client, posterior, 2 * JOB_DRAWS))
        more = Counter(twice.sent)
        more.subtract(found.sent)
        group = Cost({what: count / groups for what, count in more.items()}, {})
        on_cache = sum(count for what, count in found.sent.items() if what.startswith("cache: H"))
        if found.total <= JOB and group.total <= GROUP and on_cache <= HASH * groups:
            return
    pytest.fail(f"a job of {JOB_DRAWS} draws: {found}\neach further lane group: {group}")
