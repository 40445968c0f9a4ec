"""Lists: the cost of a page, and its cursor."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from service.submission import pagination
from tests.conftest import in_turn
from tests.service.conftest import all_items, check_problem, upload

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.stores import Stores

STEP = 100  # records that a page looks at
WRITES = "zadd zrem hset del set sadd srem lpush rpush expire hincrby eval evalsha"


def commands_of(client: httpx.Client, stores: Stores, path: str) -> dict[str, int]:
    """Return the number of each command to the queue server during a list.

    The app may write its counters meanwhile, once, if the pause before this began earlier; the list is then read again.
    """
    for _ in range(2):
        stores.client.config_resetstat()
        client.get(path).raise_for_status()
        statistics = stores.client.info("commandstats").items()
        calls = {name.removeprefix("cmdstat_"): payload["calls"] for name, payload in statistics}
        if "hincrby" not in calls:
            break
    return {name: count for name, count in calls.items() if name not in {"info", "config|resetstat", "subscribe"}}


def test_a_filtered_page_reads_a_limited_number_of_jobs(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of the one job that has ended comes after empty ones, and a list writes nothing."""
    monkeypatch.setattr("worker.storage.api_keys.KEY_CHECK_SECONDS", 1e9)
    monkeypatch.setattr("service.server.metrics.FLUSH_SECONDS", 1e9)
    monkeypatch.setattr(pagination, "MAX_READ_RECORDS", STEP)
    assert client.get("/v1/info").status_code == 200  # has looked whether there are keys
    job, _ = stores.jobs.create(kind="draws", claim="ended", posterior="post_1", spec={}, total=1)
    stores.jobs.start(job.id)
    stores.jobs.succeed(job.id)
    for number in range(2 * STEP):
        waiting, _ = stores.jobs.create(kind="fit", claim=str(number), posterior="post_1", spec={}, total=1)
        stores.client.hset(f"glle:job:{waiting.id}", "touched", 1)  # a list compares recent heartbeats with the queue
    for filtered in ("status=succeeded", "kind=draws", "status=succeeded&kind=draws"):
        path, items = f"/v1/jobs?{filtered}&limit=1", []
        for _ in range(3):
            commands = commands_of(client, stores, path)
            assert not set(WRITES.split()) & commands.keys()
            assert sum(commands.values()) < STEP + 10
            page = client.get(path).json()
            items += page["items"]
            path = f"/v1/jobs?{filtered}&limit=1&cursor={page['next']}"
        assert [item["id"] for item in items] == [job.id]
    assert in_turn(stores) == [], "a list enqueues nothing"


def test_filters_of_jobs_page_through_all(client: httpx.Client, stores: Stores) -> None:
    """Pages of any length have the jobs of their status and kind, the newest first."""
    ids = []
    for number in range(25):
        kind: Any = ("fit", "draws", "summary")[number % 3]
        job, _ = stores.jobs.create(kind=kind, claim=str(number), posterior="post_1", spec={}, total=1)
        if number % 2:
            stores.jobs.cancel(job.id)
        ids.append(job.id)
    everything = {item["id"]: item for item in all_items(client, "/v1/jobs", 7)}
    assert len(everything) == 25
    for filtered, expected in (
        ("?status=queued", ids[::2]),
        ("?kind=draws", ids[1::3]),
        ("?kind=fit&status=cancelled", [id_ for number, id_ in enumerate(ids) if number % 3 == 0 and number % 2]),
    ):
        records = [item["id"] for item in all_items(client, f"/v1/jobs{filtered}", 4)]
        assert sorted(records) == sorted(expected)
        assert records == [id_ for id_ in everything if id_ in expected]


def test_a_list_of_posteriors_is_read_in_few_round_trips(
    client: httpx.Client, stores: Stores, drawn_posterior: str
) -> None:
    """A list reads a hundred records per round trip, and only those with a tag."""
    record = stores.posteriors.fetch(drawn_posterior.rpartition("/")[2])
    for number in range(150):
        stores.posteriors.create(replace(record, id=f"post_{number:032x}", created=f"2026-01-01T00:00:{number:06d}"))
    calls = commands_of(client, stores, "/v1/posteriors?tag=unknown")
    assert calls.keys().isdisjoint({"get", "mget"}), "the tag is indexed"
    calls = commands_of(client, stores, "/v1/posteriors?limit=100")
    assert calls.get("get", 0) <= 1
    assert calls["mget"] <= 3
    assert len(list(all_items(client, "/v1/posteriors", 50))) == 151


def test_the_record_of_an_ended_job_can_be_deleted(client: httpx.Client, stores: Stores) -> None:
    """?record=true deletes the record of an ended job; for an open one 409 names the cancellation."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    path = f"/v1/jobs/{job.id}"
    check_problem(client.delete(path, params={"record": "true"}), 409, "job-not-ended")
    assert client.delete(path).json()["status"] == "cancelled"
    assert client.get(path).status_code == 200
    assert client.delete(path, params={"record": "true"}).json()["status"] == "cancelled"
    assert client.get(path).status_code == 404
    assert client.get("/v1/jobs").json()["items"] == []
    other = stores.for_tenant("other").jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)[0]
    assert client.delete(f"/v1/jobs/{other.id}", params={"record": "true"}).status_code == 404


def test_a_page_is_bounded_in_bytes(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends before its bytes exceed the limit, with one item at least; the pages together have all."""
    ids = [upload(client, [[float(number), 1.0], [2.0, 3.0], [1.0, 5.0]]) for number in range(5)]
    item = len(json.dumps(client.get("/v1/datasets?limit=1").json()["items"][0], separators=(",", ":")))
    for limit, pages in ((1, [1, 1, 1, 1, 1]), (int(2.5 * item), [2, 2, 1]), (10 * item, [5])):
        monkeypatch.setattr(pagination, "MAX_PAGE_BYTES", limit)
        sizes: list[int] = []
        read: list[str] = []
        cursor: dict[str, str] | None = {}
        while cursor is not None:
            payload = client.get("/v1/datasets", params=cursor).json()
            read += [each["id"] for each in payload["items"]]
            sizes.append(len(payload["items"]))
            cursor = payload["next"] and {"cursor": payload["next"]}
        assert (sizes, read) == (pages, ids[::-1])


def test_a_record_without_json_is_reported_and_can_be_deleted(
    client: httpx.Client, stores: Stores, drawn_posterior: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A list has the other records, and the id of the one whose text is no UTF-8."""
    record = stores.posteriors.fetch(drawn_posterior.rpartition("/")[2])
    other = replace(record, id=f"post_{0:032x}", diagnostics={"figures": {}, "notes": [{"message": "\ud800"}]})
    stores.posteriors.create(other)
    page = client.get("/v1/posteriors").json()
    assert ([item["id"] for item in page["items"]], page["unreadable"]) == ([record.id], [other.id])
    assert other.id in caplog.text
    assert client.get("/v1/posteriors?limit=1").json()["next"] is not None
    assert [item["id"] for item in all_items(client, "/v1/posteriors", 1)] == [record.id]
    assert client.delete(f"/v1/posteriors/{other.id}").status_code == 204
    assert client.get("/v1/posteriors").json()["unreadable"] == []
