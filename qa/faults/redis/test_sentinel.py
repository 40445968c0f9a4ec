"""Masters and replicas under sentinels, killed during work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
import pytest

from qa.faults.redis.conftest import alone, array, deployed, followed, load, outcome, patiently, prepared
from qa.faults.redis.nodes import CACHE, QUEUE, watched
from tests.conftest import until
from tests.system.conftest import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from qa.faults.redis.nodes import Watched
    from tests.system.conftest import Up

Behind = tuple["Up", httpx.Client, dict[str, "Watched"], str]
BODY = {"count": 500, "seed": 1}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Return the service on a queue with two replicas and a cache with one, and a posterior."""
    folder = tmp_path_factory.mktemp("sentinel")
    bound = ("min-replicas-to-write 1", "min-replicas-max-lag 5")
    with watched(folder, queue=(2, (*QUEUE, *bound)), cache=(1, CACHE)) as services:
        urls = {"GLLE_REDIS_URL": f"{services['queue'].url}&replicas=1", "GLLE_CACHE_URL": services["cache"].url}
        with deployed(folder / "up", **urls) as (up, client):
            yield up, client, services, prepared(client)


def test_queue_master_killed_during_a_job(behind: Behind, figure: Callable[[str, object], None]) -> None:
    """The job ends with the engine's bits, every accepted job ends, and refusals have Retry-After."""
    up, client, services, posterior = behind
    expected = alone(client, posterior, BODY)
    job = client.post(posterior + "/draws", json=BODY).json()
    with followed(up.url, job["links"]["events"]) as seen, load(up.url, posterior, first=1000) as answers:
        until(lambda: client.get(job["links"]["self"]).json()["progress"]["done"] >= 50)
        killed_at, since = services["queue"].kill_master()
        assert outcome(client, job["id"]) == "succeeded"
        figure("sentinel, queue master killed: the job ended after", time.monotonic() - since)
        until(
            lambda: any(status < 300 for at, status in answers.statuses if at > since + 1) and bool(answers.refused())
        )
        time.sleep(2)
    until(lambda: seen[-1:] != [] and seen[-1][1] == "end", 60)
    assert {outcome(client, id_) for id_ in answers.accepted} == {"succeeded"}
    assert {status for _, status in answers.statuses} <= {200, 202, 503}
    assert answers.without_retry == []
    assert array(client, job["links"]["self"] + "/result") == expected
    figure("sentinel, queue master killed: requests accepted again after", answers.healed(since))
    figure("sentinel, queue master killed: accepted, refused, lost", f"{len(answers.accepted)}, {answers.refused()}, 0")
    killed_at.start()
    until(lambda: killed_at.client.info("replication")["role"] == "slave", 30)


def test_cache_master_killed_during_a_job(behind: Behind, figure: Callable[[str, object], None]) -> None:
    """Workers wait for the new master; draws that were not replicated are computed again with the same bits."""
    _, client, services, posterior = behind
    body = {**BODY, "seed": 2}
    expected = alone(client, posterior, body)
    job = client.post(posterior + "/draws", json=body).json()
    until(lambda: client.get(job["links"]["self"]).json()["progress"]["done"] >= 50)
    killed_at, since = services["cache"].kill_master()
    assert outcome(client, job["id"]) == "succeeded"
    figure("sentinel, cache master killed: the job ended after", time.monotonic() - since)
    answer = patiently(client, "GET", job["links"]["self"] + "/result")
    if answer.status_code == 202:  # some draws were lost with the master
        assert outcome(client, job["id"]) == "succeeded"
    assert array(client, job["links"]["self"] + "/result") == expected
    assert patiently(client, "GET", "/readyz").status_code == 200
    killed_at.start()
    until(lambda: killed_at.client.info("replication")["role"] == "slave", 30)


def test_isolated_master_loses_no_job(behind: Behind, figure: Callable[[str, object], None], tmp_path: Path) -> None:
    """If all replicas must confirm a job, the old master accepts no job that the promoted replica lacks."""
    _, client, services, posterior = behind
    queue = services["queue"]
    before = queue.master()
    urls = {"GLLE_REDIS_URL": f"{queue.url}&replicas=2", "GLLE_CACHE_URL": services["cache"].url}
    data = str(behind[0].log.parent / "data")
    with started(tmp_path / "serve.log", "serve", "--port", "0", **urls, GLLE_DATA_DIR=data) as api:
        until(lambda: _all_follow(queue))
        with load(api.url, posterior, first=5000) as answers:
            until(lambda: len(answers.accepted) >= 5)
            since = time.monotonic()
            queue.sentinels[0].command("SENTINEL", "FAILOVER", "queue")
            until(lambda: queue.master() is not before, 30)
            until(lambda: answers.refused() and answers.healed(since) < float("inf"), 60)
            healed = answers.healed(since)
    assert {status for _, status in answers.statuses} <= {200, 202, 503}
    assert answers.without_retry == []
    assert {outcome(client, id_) for id_ in answers.accepted} == {"succeeded"}
    figure("sentinel, failover by hand: requests accepted again after", healed)
    figure("sentinel, failover by hand: accepted, refused, lost", f"{len(answers.accepted)}, {answers.refused()}, 0")


def _all_follow(queue: Watched) -> bool:
    """Return whether every server but the master is a replica in sync."""
    return bool(queue.master().client.info("replication")["connected_slaves"] == len(queue.nodes) - 1)


def test_master_without_replicas_accepts_no_job(behind: Behind) -> None:
    """A master without replicas answers 503 with the reason, and accepts jobs again once a replica is back."""
    _, client, services, posterior = behind
    replicas = [node for node in services["queue"].nodes if node is not services["queue"].master()]
    for node in replicas:
        node.kill()
    body = {"count": 2, "seed": 9001}
    answer = client.post(posterior + "/draws", json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["type"] in {"urn:glle:problem:not-replicated", "urn:glle:problem:redis-unavailable"}
    for node in replicas:
        node.start()
    answer = patiently(client, "POST", posterior + "/draws", json=body)
    assert answer.status_code in {200, 202}
    assert outcome(client, answer.json()["id"]) == "succeeded"
