"""Quotas of a tenant, a queue server near its limit, and more jobs than are accepted."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.conftest import stored_files
from tests.service.conftest import check_problem, posterior_record, register_worker, upload
from tests.service.tenants import bearer, resources_of, serve_stores
from tests.worker.storage.conftest import fill_memory
from worker.records.quotas import MAX_JOB_RETRY_SECONDS, RECORD_BYTES

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.stores import Stores

SHEET = {"name": "s_curve", "n": 50}


def post_fit(client: httpx.Client, dataset: str, k: int) -> httpx.Response:
    """Post a fit with k neighbors."""
    return client.post("/v1/posteriors", json={"dataset": dataset, "n_neighbors": k})


def check_exceeded(answer: httpx.Response, quota: str) -> dict[str, Any]:
    """Return the details of a 429 with Retry-After."""
    assert answer.status_code == 429, answer.text
    payload = answer.json()
    assert payload["type"] == "urn:glle:problem:quota-exceeded"
    assert payload["details"]["quota"] == quota
    assert answer.headers["retry-after"] == str(payload["details"]["retry_after"])
    return dict(payload["details"])


def test_bytes_of_data_sets(stores: Stores) -> None:
    """An upload beyond the quota is refused without a trace; known data fit, and a deletion makes room."""
    with serve_stores(stores, quotas="*=bytes:4500") as client:  # one sheet: 50 x 3 and 50 x 2 float64, two headers
        first = client.post("/v1/datasets/synthetic", json=SHEET).raise_for_status().json()["id"]
        before = stored_files(stores)
        answer = client.post("/v1/datasets/synthetic", json={**SHEET, "seed": 1})
        details = check_exceeded(answer, "bytes")
        assert details["allowed"] == 4500
        assert details["used"] == stores.datasets.usage()["stored_bytes"] > 2000
        assert "Delete" in answer.json()["remedy"]
        assert stored_files(stores) == before
        assert client.post("/v1/datasets/synthetic", json=SHEET).status_code == 200
        client.delete(f"/v1/datasets/{first}").raise_for_status()
        assert client.post("/v1/datasets/synthetic", json={**SHEET, "seed": 1}).status_code == 201


def test_open_jobs(stores: Stores) -> None:
    """The job beyond the quota is refused; a shared or known one is not, and an end makes room."""
    with serve_stores(stores, quotas="*=jobs:2") as client:
        dataset = client.post("/v1/datasets/synthetic", json=SHEET).json()["id"]
        fit = partial(post_fit, client, dataset)
        first = fit(5)
        assert (first.status_code, fit(6).status_code) == (202, 202)
        details = check_exceeded(fit(7), "jobs")
        assert (details["quota"], details["allowed"]) == ("jobs", 2)
        assert 1 <= details["retry_after"] <= MAX_JOB_RETRY_SECONDS
        assert fit(5).json()["id"] == first.json()["id"]
        client.delete(f"/v1/jobs/{first.json()['id']}").raise_for_status()
        assert fit(7).status_code == 202
        assert fit(8).status_code == 429


def test_a_draw_by_get_is_a_job_too(stores: Stores) -> None:
    """An uncached draw counts as a job, with 429 beyond the quota; a cached one does not count."""
    had = resources_of("default", stores)
    draws = f"/v1/posteriors/{had.posterior}/draws"
    with serve_stores(stores, auth="off", quotas="*=jobs:1") as client:
        assert client.get(f"{draws}/1?wait=0").status_code == 202
        assert check_exceeded(client.get(f"{draws}/2?wait=0.1"), "jobs")["allowed"] == 1
        assert client.get(f"{draws}/0").status_code == 200


def test_usage_is_that_of_the_tenant_beside_its_quotas(stores: Stores) -> None:
    """Bytes, jobs, records and posteriors of the key's tenant; no other tenant is counted."""
    alice = resources_of("alice", stores)
    quotas = "alice=bytes:90000,jobs:3,posteriors:7,records:64KiB"
    with serve_stores(stores, auth="required", quotas=quotas) as client:
        headers = {**alice.headers}
        assert client.get("/v1/usage").status_code == 401
        first = client.get("/v1/usage", headers=headers).json()
        job = client.post(f"/v1/posteriors/{alice.posterior}/calibration", json={}, headers=headers).json()
        answer = client.get("/v1/usage", headers=headers).json()
        other = client.get("/v1/usage", headers=bearer(stores, "carol", "read")).json()
        assert job["status"] == "queued"
    used, others = (
        {name: (quota["used"], quota["allowed"]) for name, quota in usage["quotas"].items()}
        for usage in (answer, other)
    )
    assert used == {
        "bytes": (stores.for_tenant("alice").datasets.usage()["stored_bytes"], 90000), "jobs": (1, 3),
        "posteriors": (1, 7),
        "records": (stores.for_tenant("alice").jobs.counts()[1], 2**16),
    }  # fmt: skip
    assert used["bytes"][0] > 1000
    assert first["quotas"]["jobs"]["used"] == 0
    assert (answer["tenant"], answer["datasets"]) == ("alice", 1)
    assert others == {
        "bytes": (0, None), "jobs": (0, 7500), "records": (0, 2**26), "posteriors": (0, 10000),
    }  # fmt: skip


def test_above_the_mark_only_new_work_is_refused(client: httpx.Client, stores: Stores) -> None:
    """New jobs get 503 with Retry-After; jobs are read, cancelled and removed; /readyz is degraded."""
    register_worker(stores)
    dataset = upload(client)
    posted = {"dataset": dataset, "n_neighbors": 3}
    job = client.post("/v1/posteriors", json=posted).json()["id"]
    assert client.get("/readyz").json()["status"] == "ok"
    with fill_memory(stores, 0.9):
        answer = client.post("/v1/posteriors", json={**posted, "reg": 0.1})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-full")
        assert int(answer.headers["retry-after"]) > 0
        assert "record=true" in answer.json()["remedy"]
        assert client.post("/v1/posteriors", json=posted).json()["id"] == job
        payload = client.get("/readyz").json()
        assert payload["status"] == "degraded"
        assert [check["state"] for check in payload["checks"] if check["name"] == "queue server"] == ["warning"]
        assert client.get(f"/v1/jobs/{job}").status_code == 200
        assert client.delete(f"/v1/jobs/{job}").json()["status"] == "cancelled"
        assert client.delete(f"/v1/jobs/{job}?record=true").status_code == 200
    with fill_memory(stores, 0.99):
        check_problem(client.get("/readyz"), 503, "redis-full")
    assert client.post("/v1/posteriors", json={**posted, "reg": 0.1}).status_code == 202


def test_a_tenant_leaves_jobs_to_others(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a quota a tenant may have three times what is free; 0 lets it have all."""
    monkeypatch.setattr("worker.jobs.store.MAX_JOBS", 8)
    monkeypatch.setattr("service.server.metrics.MAX_JOBS", 8)
    with serve_stores(stores, auth="required", quotas="bob=jobs:0") as client:

        def accepted(tenant: str) -> list[int]:
            """Post fits until one is refused; return the statuses."""
            headers = bearer(stores, tenant)
            dataset = client.post("/v1/datasets/synthetic", json=SHEET, headers=headers).json()["id"]
            statuses: list[int] = []
            while not statuses or statuses[-1] == 202:
                body = {"dataset": dataset, "n_neighbors": 2 + len(statuses)}
                statuses.append(client.post("/v1/posteriors", json=body, headers=headers).status_code)
            return statuses

        assert accepted("alice") == [202] * 6 + [429]
        assert client.get("/v1/usage", headers=bearer(stores, "alice")).json()["quotas"]["jobs"]["used"] == 6
        assert accepted("carol") == [202, 429]
        assert accepted("bob") == [202, 503]
        text = client.get("/metrics", headers=bearer(stores, "a", "admin")).text
        assert re.findall(r'glle_share_in_use{of="jobs"} (\S+)', text) == ["1.0"]


def test_jobs_of_all_tenants_are_bounded(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job beyond the limit is refused with 503 and Retry-After; cancelling one makes room."""
    monkeypatch.setattr("worker.jobs.store.MAX_JOBS", 2)
    with serve_stores(stores) as client:
        dataset = upload(client)
        fit = partial(post_fit, client, dataset)
        first, second, refused = fit(2), fit(3), fit(4)
        assert (first.status_code, second.status_code, refused.status_code) == (202, 202, 503)
        assert refused.json()["type"] == "urn:glle:problem:too-many-jobs"
        assert 1 <= int(refused.headers["retry-after"]) <= MAX_JOB_RETRY_SECONDS
        client.delete(f"/v1/jobs/{first.json()['id']}").raise_for_status()
        assert fit(4).status_code == 202


def test_posteriors_of_a_tenant_are_bounded(stores: Stores) -> None:
    """A fit beyond the quota is 429 with the remedy; a known posterior is answered, and a deletion makes room."""
    had = resources_of("default", stores)
    with serve_stores(stores, auth="off", quotas="*=posteriors:1") as client:
        fits = {"dataset": had.dataset}
        refused = client.post("/v1/posteriors", json={**fits, "reg": 0.5})
        assert (refused.status_code, refused.json()["details"]["quota"]) == (429, "posteriors")
        assert "DELETE /v1/posteriors" in refused.json()["remedy"]
        assert refused.headers["retry-after"]
        assert client.post("/v1/posteriors", json=fits).status_code == 200
        client.delete(f"/v1/posteriors/{had.posterior}").raise_for_status()
        assert client.post("/v1/posteriors", json={**fits, "reg": 0.5}).status_code == 202


def test_bytes_of_posterior_records_count_in_the_quota(stores: Stores) -> None:
    """Beyond the bytes that the quota of posteriors allows, 429 has the bytes; a deletion makes room."""
    fits = {"dataset": resources_of("default", stores).dataset, "reg": 0.5}
    long = {"figures": {}, "notes": [{"code": "a-code", "message": "x" * 2 * RECORD_BYTES}]}
    for number in range(3):
        stores.posteriors.create(posterior_record(id=f"post_{number}", dataset=fits["dataset"], n=9, diagnostics=long))
    with serve_stores(stores, auth="off", quotas="*=posteriors:6") as client:
        details = check_problem(client.post("/v1/posteriors", json=fits), 429, "quota-exceeded")["details"]
        assert (details["quota"], details["allowed"]) == ("posteriors", 6 * RECORD_BYTES)
        assert details["used"] > details["allowed"]
        client.delete("/v1/posteriors/post_0").raise_for_status()
        assert client.post("/v1/posteriors", json=fits).status_code == 202
