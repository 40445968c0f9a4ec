"""Quotas of a tenant: bytes, open jobs, requests per minute."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import redis

from service.middleware import rate_limit
from tests.conftest import stored_files
from tests.service.tenants import bearer, resources_of, served
from worker.records.quotas import MAX_PAUSE

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.stores import Stores

SHEET = {"name": "s_curve", "n": 50}


def exceeded(answer: httpx.Response, quota: str) -> dict[str, Any]:
    """Return the details of a 429 with Retry-After."""
    assert answer.status_code == 429, answer.text
    payload = answer.json()
    assert payload["type"] == "urn:glle:problem:quota-exceeded"
    assert payload["details"]["quota"] == quota
    assert answer.headers["retry-after"] == str(payload["details"]["retry_after"])
    return dict(payload["details"])


def test_without_quotas_nothing_is_counted(client: httpx.Client, stores: Stores) -> None:
    """By default there is no quota, and no bucket in Redis."""
    for seed in range(5):
        assert client.post("/v1/datasets/synthetic", json={**SHEET, "seed": seed}).status_code == 201
    assert not stores.client.exists("glle:rate")


def test_bytes_of_data_sets(stores: Stores) -> None:
    """An upload beyond the quota is refused without a trace; known data fit, and a deletion makes room."""
    with served(stores, quotas="*=bytes:4500") as client:  # one sheet: 50 x 3 and 50 x 2 float64, two headers
        first = client.post("/v1/datasets/synthetic", json=SHEET).raise_for_status().json()["id"]
        before = stored_files(stores)
        answer = client.post("/v1/datasets/synthetic", json={**SHEET, "seed": 1})
        details = exceeded(answer, "bytes")
        assert details["allowed"] == 4500
        assert details["used"] == stores.datasets.usage()["stored_bytes"] > 2000
        assert "Delete" in answer.json()["remedy"]
        assert stored_files(stores) == before
        assert client.post("/v1/datasets/synthetic", json=SHEET).status_code == 200
        client.delete(f"/v1/datasets/{first}").raise_for_status()
        assert client.post("/v1/datasets/synthetic", json={**SHEET, "seed": 1}).status_code == 201


def test_open_jobs(stores: Stores) -> None:
    """The job beyond the quota is refused; a shared or known one is not, and an end makes room."""
    with served(stores, quotas="*=jobs:2") as client:
        dataset = client.post("/v1/datasets/synthetic", json=SHEET).json()["id"]

        def fit(k: int) -> httpx.Response:
            return client.post("/v1/posteriors", json={"dataset": dataset, "n_neighbors": k})

        first = fit(5)
        assert (first.status_code, fit(6).status_code) == (202, 202)
        details = exceeded(fit(7), "jobs")
        assert (details["quota"], details["allowed"]) == ("jobs", 2)
        assert 1 <= details["retry_after"] <= MAX_PAUSE
        assert fit(5).json()["id"] == first.json()["id"]
        client.delete(f"/v1/jobs/{first.json()['id']}").raise_for_status()
        assert fit(7).status_code == 202
        assert fit(8).status_code == 429


def test_a_draw_by_get_is_a_job_too(stores: Stores) -> None:
    """An uncached draw counts as a job, with 429 beyond the quota; a cached one does not count."""
    had = resources_of("default", stores)
    draws = f"/v1/posteriors/{had.posterior}/draws"
    with served(stores, auth="off", quotas="*=jobs:1") as client:
        assert client.get(f"{draws}/1?wait=0").status_code == 202
        assert exceeded(client.get(f"{draws}/2?wait=0.1"), "jobs")["allowed"] == 1
        assert client.get(f"{draws}/0").status_code == 200


def test_requests_per_minute(stores: Stores) -> None:
    """After a burst of the quota 429 has the seconds until the next request; probes do not count."""
    with served(stores, quotas="*=requests:6") as client:
        assert [client.get("/v1/info").status_code for _ in range(6)] == [200] * 6
        details = exceeded(client.get("/v1/info"), "requests")
        assert details["allowed"] == 6
        assert 9 <= details["retry_after"] <= 10
        assert client.get("/livez").status_code == 200


def test_a_bucket_refills(stores: Stores) -> None:
    """After the announced seconds a request succeeds."""
    with served(stores, quotas="*=requests:120") as client:
        while (answer := client.get("/v1/info")).status_code == 200:
            pass
        time.sleep(int(answer.headers["retry-after"]))
        assert client.get("/v1/info").status_code == 200


def test_without_redis_each_process_counts_separately(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests without Redis continue at the quota's rate; beyond it they are 429."""

    def away(*_: object) -> tuple[int, int]:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(rate_limit.RateLimiter, "_take", away)
    with served(stores, quotas="*=requests:180") as client:
        assert [client.get("/v1/datasets").status_code for _ in range(3)] == [200] * 3
        details = exceeded(client.get("/v1/datasets"), "requests")
        time.sleep(details["retry_after"])
        assert client.get("/v1/datasets").status_code == 200


def test_the_quota_holds_over_all_processes(stores: Stores) -> None:
    """Two APIs share one bucket, each to within a second's worth of requests."""
    with served(stores, quotas="*=requests:60") as first, served(stores, quotas="*=requests:60") as other:
        began = time.monotonic()
        answers = [client.get("/v1/info").status_code for _ in range(50) for client in (first, other)]
        seconds = math.ceil(time.monotonic() - began)
    assert 60 <= answers.count(200) <= 60 + seconds
    assert answers.count(429) == 100 - answers.count(200)


def test_refusals_need_no_redis(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals come from memory until the next request is allowed."""
    refills: list[str] = []
    take = rate_limit.RateLimiter._take

    def counted(self: rate_limit.RateLimiter, tenant: str, most: int) -> tuple[int, int]:
        refills.append(tenant)
        return take(self, tenant, most)

    monkeypatch.setattr(rate_limit.RateLimiter, "_take", counted)
    with served(stores, quotas="*=requests:1") as client:
        assert [client.get("/v1/info").status_code for _ in range(20)] == [200] + [429] * 19
    assert refills == ["default"] * 2


def test_quotas_of_tenants_are_separate(stores: Stores) -> None:
    """A tenant at its quota does not affect another one."""
    with served(stores, auth="required", quotas="*=jobs:1,bytes:4500,requests:20") as client:
        for tenant in ("alice", "bob"):
            headers = bearer(stores, tenant)
            created = client.post("/v1/datasets/synthetic", json=SHEET, headers=headers)
            assert created.status_code == 201
            exceeded(client.post("/v1/datasets/synthetic", json={**SHEET, "seed": 1}, headers=headers), "bytes")
            body = {"dataset": created.json()["id"]}
            assert client.post("/v1/advice", json=body, headers=headers).status_code == 202
            exceeded(client.post("/v1/posteriors", json=body, headers=headers), "jobs")
            while (answer := client.get("/v1/jobs", headers=headers)).status_code == 200:
                assert [job["kind"] for job in answer.json()["items"]] == ["advice"]
            exceeded(answer, "requests")


def test_a_tenant_may_have_other_quotas(stores: Stores) -> None:
    """GLLE_QUOTAS has the quotas of single tenants; the others have the defaults."""
    settings = {"auth": "required", "quotas": "*=jobs:1,requests:3 alice=requests:5 bob=jobs:0"}
    with served(stores, **settings) as client:
        for tenant, requests in {"alice": 5, "bob": 3, "carol": 3}.items():
            headers = bearer(stores, tenant)
            assert [client.get("/v1/info", headers=headers).status_code for _ in range(requests)] == [200] * requests
            assert exceeded(client.get("/v1/info", headers=headers), "requests")["allowed"] == requests


def test_usage_is_that_of_the_tenant_beside_its_quotas(stores: Stores) -> None:
    """Bytes, jobs, requests, records and posteriors of the key's tenant; those of another are not counted."""
    alice = resources_of("alice", stores)
    quotas = "alice=bytes:90000,jobs:3,requests:600,posteriors:7,records:50"
    with served(stores, auth="required", quotas=quotas) as client:
        headers = {**alice.headers}
        assert client.get("/v1/usage").status_code == 401
        first = client.get("/v1/usage", headers=headers).json()
        job = client.post("/v1/advice", json={"dataset": alice.dataset}, headers=headers).json()
        answer = client.get("/v1/usage", headers=headers).json()
        other = client.get("/v1/usage", headers=bearer(stores, "carol", "read")).json()
        assert job["status"] == "queued"
    used = {name: quota["used"] for name, quota in answer["quotas"].items()}
    assert answer["tenant"] == "alice"
    assert {name: quota["allowed"] for name, quota in answer["quotas"].items()} == {
        "bytes": 90000, "jobs": 3, "requests": 600, "records": 50, "posteriors": 7,
        "idempotency_keys": 100_000,
    }  # fmt: skip
    assert used | {"requests": 0} == {
        "bytes": stores.of("alice").datasets.usage()["stored_bytes"], "jobs": 1, "requests": 0, "records": 1,
        "posteriors": 1, "idempotency_keys": 0,
    }  # fmt: skip
    assert used["bytes"] > 1000
    assert first["quotas"]["jobs"]["used"] == 0
    assert 1 <= used["requests"] <= 10 + 3  # three requests, and the rest of one second's share
    assert 0 < answer["quotas"]["requests"]["reset"] < 2
    assert answer["datasets"] == 1
    assert {name: (quota["used"], quota["allowed"]) for name, quota in other["quotas"].items()} == {
        "bytes": (0, None), "jobs": (0, None), "requests": (0, None), "records": (0, 10000), "posteriors": (0, 10000),
        "idempotency_keys": (0, 100_000),
    }  # fmt: skip
