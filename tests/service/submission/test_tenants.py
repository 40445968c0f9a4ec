"""Separation of tenants in every route, list and id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.middleware.access_policy import OPEN_PATHS
from tests.service.schemas.bodies import CONTRACT, OPERATIONS
from tests.service.tenants import BODIES, TenantResources, bearer, resources_of
from worker.analyses.posterior_analyses import CalibrationSpec, calibration_facts
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

LISTS = ("/v1/datasets", "/v1/posteriors", "/v1/jobs")
WITH_ID = [(method, path) for method, path, _ in OPERATIONS if "{id}" in path]


@pytest.fixture
def alice(stores: Stores) -> TenantResources:
    """The resources of the tenant alice."""
    return resources_of("alice", stores)


@pytest.fixture
def bob(stores: Stores) -> TenantResources:
    """The resources of the tenant bob."""
    return resources_of("bob", stores)


def test_routes_without_an_id_are_known() -> None:
    """All other routes are lists, commands with a data set in the body, and shared resources."""
    walked = {path for _, path in WITH_ID}
    shared = OPEN_PATHS | {"/metrics", "/v1/info", "/v1/methods", "/v1/methods/{name}", "/v1/datasets/synthetic"}
    shared |= {"/v1/scores", "/v1/datasets/preview", "/v1/usage"}
    commands = {"/v1/embeddings", "/v1/comparisons"}
    commands |= {"/v1/audits"}
    assert set(CONTRACT["paths"]) - walked - shared - set(LISTS) == commands
    assert {path for method, path in WITH_ID if method in {"post", "patch"}} == set(BODIES)


def test_lists_are_disjoint(
    guarded_client: httpx.Client, stores: Stores, alice: TenantResources, bob: TenantResources
) -> None:
    """Each list has one resource of its tenant; the default tenant, which owns records without a tenant, has none."""
    for path in LISTS:
        lists = [guarded_client.get(path, headers=by.headers).json()["items"] for by in (alice, bob)]
        ids = [{item["id"] for item in items} for items in lists]
        assert [len(ids) for ids in ids] == [1, 1]
        assert not ids[0] & ids[1]
    assert alice.job != bob.job
    for tenant in ("carol", "default"):
        headers = bearer(stores, tenant)
        assert [guarded_client.get(path, headers=headers).json()["items"] for path in LISTS] == [[], [], []]


def test_a_cached_response_is_private_to_its_tenant(
    guarded_client: httpx.Client, alice: TenantResources, bob: TenantResources
) -> None:
    """A draw in the API's memory is sent to its owner only, and no shared cache may store it."""
    path = f"/v1/posteriors/{alice.posterior}/draws/0"
    for _ in range(2):
        answer = guarded_client.get(path, headers=alice.headers).raise_for_status()
        assert answer.headers["cache-control"].startswith("private")
        for conditions in ({}, {"If-None-Match": answer.headers["etag"]}, {"If-None-Match": "*"}):
            assert guarded_client.get(path, headers={**bob.headers, **conditions}).status_code == 404
            assert guarded_client.get(path, headers=conditions).status_code == 401


def test_deletions_do_not_affect_other_tenants(
    guarded_client: httpx.Client, stores: Stores, alice: TenantResources, bob: TenantResources
) -> None:
    """A data set is deleted with its posterior, draws and calibration, and those of no other tenant."""
    spec = CalibrationSpec()
    for had in (alice, bob):
        stores.posteriors.calibrate(had.posterior, calibration_facts({"scale": 2.0}))
        result = Entry({"scale": 2.0}, {"draw_spread": np.ones(60)})
        stores.results.put(
            spec.key(had.posterior),
            result,
            owners=[had.posterior],
            job=had.job,
            tenant=stores.jobs.fetch(had.job).tenant,
        )
    answer = guarded_client.delete(f"/v1/datasets/{alice.dataset}", params={"force": True}, headers=alice.headers)
    assert answer.status_code == 204
    assert [guarded_client.get(path, headers=alice.headers).json()["items"] for path in LISTS[:2]] == [[], []]
    assert guarded_client.get(f"/v1/posteriors/{bob.posterior}/draws/0", headers=bob.headers).status_code == 200
    assert stores.posteriors.calibration(alice.posterior) is None
    assert stores.posteriors.calibration(bob.posterior) == {"scale": 2.0}
    assert stores.results.contains([spec.key(had.posterior) for had in (alice, bob)]) == [False, True]


def test_a_body_does_not_reach_another_tenants_data(
    guarded_client: httpx.Client, alice: TenantResources, bob: TenantResources
) -> None:
    """A fit, an embedding, an audit and new points refuse the data of another tenant, also as labels or truth."""
    pca = {"method": "pca"}
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/posteriors", {}),
        ("/v1/audits", {**pca, "score_neighbors": 5}),
        ("/v1/embeddings", pca),
        ("/v1/comparisons", {"methods": [pca, {"method": "lle"}]}),
        (f"/v1/posteriors/{bob.posterior}/transform", {}),
        (f"/v1/embeddings/{bob.embedding}/transform", {}),
    )
    mixed_requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/embeddings", {"dataset": bob.dataset, "method": "pca", "labels": alice.dataset}),
        ("/v1/embeddings", {"dataset": bob.dataset, "method": "pca", "truth": alice.dataset}),
        ("/v1/audits", {"embedding": bob.embedding, "labels": alice.dataset, "score_neighbors": 5}),
        ("/v1/audits", {"dataset": bob.dataset, "coordinates": alice.dataset}),
        ("/v1/audits", {"embedding": alice.embedding}),
        ("/v1/audits", {"posterior": alice.posterior}),
    )
    for path, body in (*((path, {"dataset": alice.dataset, **body}) for path, body in requests), *mixed_requests):
        answer = guarded_client.post(path, json=body, headers=bob.headers)
        assert (answer.status_code, answer.json()["type"].rpartition("-not-")[2]) == (404, "found"), answer.text
    for path, body in requests:
        hers = path.replace(bob.posterior, alice.posterior).replace(bob.embedding, alice.embedding)
        answer = guarded_client.post(hers + "?wait=0", json={"dataset": alice.dataset, **body}, headers=alice.headers)
        assert answer.is_success, answer.text  # no worker runs


def test_the_same_data_have_other_ids_for_each_tenant(guarded_client: httpx.Client, stores: Stores) -> None:
    """An upload is new to each tenant; only the default tenant's id begins with the digest."""
    table = "x,y\n1,2\n3,4\n5,7\n"
    payload = {}
    for tenant in ("default", "alice", "bob"):
        headers = {**bearer(stores, tenant), "Content-Type": "text/csv"}
        first, again = (guarded_client.post("/v1/datasets", headers=headers, content=table) for _ in range(2))
        assert (first.status_code, again.status_code) == (201, 200)
        payload[tenant] = first.json()
        assert again.json()["id"] == payload[tenant]["id"]
    assert len({upload["sha256"] for upload in payload.values()}) == 1
    assert len({upload["id"] for upload in payload.values()}) == 3
    begins = {tenant: upload["sha256"].startswith(upload["id"][3:]) for tenant, upload in payload.items()}
    assert begins == {"default": True, "alice": False, "bob": False}
