"""A queue server near its limit, and more jobs than are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.service.conftest import register_worker, upload
from tests.service.tenants import resources_of, served
from tests.worker.storage.conftest import used
from worker.records.quotas import MAX_PAUSE

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.stores import Stores


def test_above_the_mark_only_new_work_is_refused(client: httpx.Client, stores: Stores) -> None:
    """New jobs and new keys get 503 with Retry-After; jobs are read, cancelled and removed; /readyz is degraded."""
    register_worker(stores)
    dataset = upload(client)
    posted = {"dataset": dataset, "n_neighbors": 3}
    keyed = {"Idempotency-Key": "known"}
    job = client.post("/v1/posteriors", json=posted, headers=keyed).json()["id"]
    assert client.get("/readyz").json()["status"] == "ok"
    with used(stores, 0.9):
        for headers in ({}, {"Idempotency-Key": "new"}):
            answer = client.post("/v1/posteriors", json={**posted, "reg": 0.1}, headers=headers)
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-full")
            assert int(answer.headers["retry-after"]) > 0
            assert "record=true" in answer.json()["remedy"]
        assert not stores.client.keys("glle:idempotency:*new*")
        assert client.post("/v1/posteriors", json=posted, headers=keyed).json()["id"] == job
        payload = client.get("/readyz").json()
        assert payload["status"] == "degraded"
        assert [check["state"] for check in payload["checks"] if check["name"] == "queue server"] == ["warning"]
        assert client.get(f"/v1/jobs/{job}").status_code == 200
        assert client.delete(f"/v1/jobs/{job}").json()["status"] == "cancelled"
        assert client.delete(f"/v1/jobs/{job}?record=true").status_code == 200
    with used(stores, 0.99):
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-full")
    assert client.post("/v1/posteriors", json={**posted, "reg": 0.1}).status_code == 202


def test_jobs_of_all_tenants_are_bounded(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job beyond the limit is refused with 503 and Retry-After; cancelling one makes room."""
    monkeypatch.setattr("worker.stores.MAX_JOBS", 2)
    with served(stores) as client:
        dataset = upload(client)

        def fit(k: int) -> httpx.Response:
            return client.post("/v1/posteriors", json={"dataset": dataset, "n_neighbors": k})

        first, second, refused = fit(2), fit(3), fit(4)
        assert (first.status_code, second.status_code, refused.status_code) == (202, 202, 503)
        assert refused.json()["type"] == "urn:glle:problem:too-many-jobs"
        assert 1 <= int(refused.headers["retry-after"]) <= MAX_PAUSE
        client.delete(f"/v1/jobs/{first.json()['id']}").raise_for_status()
        assert fit(4).status_code == 202


def test_posteriors_of_a_tenant_are_bounded(stores: Stores) -> None:
    """A fit beyond the quota is 429 with the remedy; a known posterior is answered, and a deletion makes room."""
    had = resources_of("default", stores)
    with served(stores, auth="off", quotas="*=posteriors:1") as client:
        fits = {"dataset": had.dataset}
        refused = client.post("/v1/posteriors", json={**fits, "reg": 0.5})
        assert (refused.status_code, refused.json()["details"]["quota"]) == (429, "posteriors")
        assert "DELETE /v1/posteriors" in refused.json()["remedy"]
        assert refused.headers["retry-after"]
        assert client.post("/v1/posteriors", json=fits).status_code == 200
        client.delete(f"/v1/posteriors/{had.posterior}").raise_for_status()
        assert client.post("/v1/posteriors", json={**fits, "reg": 0.5}).status_code == 202


def test_ended_records_are_bounded(stores: Stores) -> None:
    """A tenant that creates and cancels without end keeps as many as its quota allows, the newest."""
    with served(stores, quotas="*=records:3") as client:
        dataset, ids = upload(client), []
        for number in range(1, 11):
            job = client.post("/v1/posteriors", json={"dataset": dataset, "reg": 0.01 * number}).json()["id"]
            client.delete(f"/v1/jobs/{job}").raise_for_status()
            ids.append(job)
        left = [item["id"] for item in client.get("/v1/jobs").json()["items"]]
        assert left == ids[:-5:-1]
        assert client.get(f"/v1/jobs/{ids[0]}").status_code == 404
