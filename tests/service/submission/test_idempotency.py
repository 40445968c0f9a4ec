"""Idempotency-Key on every POST that creates something."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from glle_engine import manifolds
from service.submission import idempotency
from service.submission.idempotency import Answers, recall_or_create
from tests.service.conftest import check_problem, upload
from tests.service.submission.conftest import CREATING, POST_1
from worker.base.problems import ProblemError, refuse
from worker.execution import tasks

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

KEY = {"idempotency-key": "of a test"}
REUSED = 422, "idempotency-key-reused"
WORDS = Answers[str](name=str, recall=str)
POSTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((path, body, {**body, "seed": 5}) for path, body in CREATING.values() if path.startswith(POST_1)),
    ("/v1/posteriors", {"n_neighbors": 5}, {"n_neighbors": 6}),
    ("/v1/advice", {"n_neighbors": [5, 7]}, {"n_neighbors": [5]}),
    ("/v1/datasets/synthetic", {"name": "s_curve", "n": 50}, {"name": "s_curve", "n": 51}),
]


@pytest.mark.parametrize(("path", "body", "other"), POSTS, ids=[path.rpartition("/")[2] for path, _, _ in POSTS])
def test_every_creating_post_accepts_a_key(
    client: httpx.Client, stores: Stores, posterior: str, path: str, body: dict[str, Any], other: dict[str, Any]
) -> None:
    """Equal key and body have the same response and status; another body or route is refused."""
    if path in {"/v1/posteriors", "/v1/advice"}:
        dataset = stores.posteriors.fetch("post_1").dataset
        body, other = {**body, "dataset": dataset}, {**other, "dataset": dataset}
    if path.endswith("/transform"):
        other = {"data": [[3.0, 2.0, 1.0]]}
    first = client.post(path, json=body, headers=KEY)
    again = client.post(path, json=body, headers=KEY)
    assert first.status_code in {201, 202}
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    check_problem(client.post(path, json=other, headers=KEY), *REUSED)
    elsewhere = client.post("/v1/datasets/synthetic", json={"name": "swiss_roll", "n": 60}, headers=KEY)
    check_problem(elsewhere, *REUSED)
    assert client.post(path, json=other, headers={"idempotency-key": "another"}).status_code in {201, 202}


def test_uploads_are_compared_by_their_bytes(client: httpx.Client) -> None:
    """Other bytes, or the same bytes with other parsing options, are another request."""
    headers = {**KEY, "content-type": "text/csv"}
    first = client.post("/v1/datasets?label=b", content="a,b\n1,x\n2,y\n", headers=headers)
    again = client.post("/v1/datasets?label=b", content="a,b\n1,x\n2,y\n", headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    for query, content in (("label=b", "a,b\n1,x\n2,z\n"), ("label=a", "a,b\n1,x\n2,y\n")):
        check_problem(client.post(f"/v1/datasets?{query}", content=content, headers=headers), *REUSED)
    assert len(client.get("/v1/datasets").json()["items"]) == 1


def test_a_key_returns_the_cancelled_job(client: httpx.Client) -> None:
    """Without the key a new job is created; with it the client gets the first one, whose result is a 409, too."""
    body = {"dataset": upload(client), "n_neighbors": 5}
    first = client.post("/v1/posteriors", json=body, headers=KEY).json()
    for _ in range(2):
        assert client.delete(first["links"]["self"]).json()["status"] == "cancelled"
    check_problem(client.get(first["links"]["self"] + "/result"), 409, "job-cancelled")
    check_problem(client.post("/v1/posteriors", json=body, headers=KEY), 409, "job-cancelled")
    assert client.post("/v1/posteriors", json=body).json()["id"] != first["id"]


def test_a_known_posterior_holds_its_key(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """A key that returned an existing posterior is used, like one that created a job."""
    record = stores.posteriors.fetch("post_1")
    body = {"dataset": record.dataset, "n_neighbors": 5}
    id_ = client.post("/v1/posteriors", json=body).json()["posterior"]
    stores.posteriors.create(replace(record, id=id_))
    assert client.post("/v1/posteriors", json=body, headers=KEY).status_code == 200
    assert client.post("/v1/posteriors", json=body, headers=KEY).json()["id"] == id_
    check_problem(client.post("/v1/posteriors", json={**body, "n_neighbors": 6}, headers=KEY), *REUSED)


@pytest.mark.parametrize("delete", ["the posterior", "its data set"])
def test_a_deleted_posterior_is_fitted_again(client: httpx.Client, stores: Stores, delete: str) -> None:
    """The stored response would lead to a 404 for a day, because its job succeeded."""
    body = {"dataset": upload(client), "n_neighbors": 5}
    first = client.post("/v1/posteriors", json=body, headers=KEY).json()
    tasks.fit(first["id"])
    fitted = client.post("/v1/posteriors?wait=1", json=body, headers=KEY)
    assert fitted.status_code == 201
    dataset = f"/v1/datasets/{body['dataset']}?force=true"
    path = f"/v1/posteriors/{fitted.json()['id']}" if delete == "the posterior" else dataset
    assert client.delete(path).status_code == 204
    upload(client)
    again = client.post("/v1/posteriors", json=body, headers=KEY)
    assert again.status_code == 202
    assert again.json()["id"] != first["id"]
    tasks.fit(again.json()["id"])
    assert client.post("/v1/posteriors?wait=1", json=body, headers=KEY).status_code == 201
    assert client.get(f"/v1/posteriors/{fitted.json()['id']}").status_code == 200


def test_a_key_in_use_is_409_until_its_answer(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During the first request others get 409 with Retry-After; afterwards they get its response."""
    begun, go, make = threading.Event(), threading.Event(), manifolds.make
    body, path = {"name": "s_curve", "n": 50}, "/v1/datasets/synthetic"

    def create(*arguments: Any, **options: Any) -> Any:
        (name,) = stores.client.scan_iter("glle:idempotency:*")
        assert 0 < stores.client.ttl(name) <= 10, "a killed process holds the key while its client still retries"
        begun.set()
        assert go.wait(10)
        return make(*arguments, **options)

    monkeypatch.setattr(manifolds, "make", create)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, path, json=body, headers=KEY)
        assert begun.wait(10)
        answer = client.post(path, json=body, headers=KEY)
        check_problem(answer, 409, "idempotency-key-in-use")
        assert int(answer.headers["retry-after"]) > 0
        check_problem(client.post(path, json={**body, "n": 9}, headers=KEY), *REUSED)
        go.set()
    assert client.post(path, json=body, headers=KEY).json() == first.result().json()


def test_keys_of_a_tenant_are_limited(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key beyond the limit is 429 until one expires; kept keys answer, and other tenants have theirs."""
    monkeypatch.setattr(idempotency, "MAX_IDEMPOTENCY_KEYS", 3)
    body = {"name": "s_curve", "n": 50}

    def post(key: str, noise: float = 0.0) -> httpx.Response:
        return client.post("/v1/datasets/synthetic", json={**body, "noise": noise}, headers={"idempotency-key": key})

    assert [post(key).status_code for key in "abb"] == [201, 200, 200]
    refused = client.post("/v1/datasets/synthetic", json={"name": "moebius"}, headers=KEY)
    check_problem(refused, 422, "invalid-parameter")  # it keeps no key
    assert post("c").status_code == 200
    refused = post("d", 0.5)
    check_problem(refused, 429, "quota-exceeded")
    assert refused.json()["details"]["quota"] == "idempotency_keys"
    assert 86_000 < int(refused.headers["retry-after"]) <= 86_400
    assert len(client.get("/v1/datasets").json()["items"]) == 1  # nothing was created
    assert [post(key).status_code for key in "abc"] == [201, 200, 200]
    quota = client.get("/v1/usage").json()["quotas"]["idempotency_keys"]
    assert quota["used"] == 3
    assert 86_000 < quota["reset"] <= 86_400
    with pytest.raises(ProblemError) as caught:
        recall_or_create(stores, "e", ("r", 1), lambda: "made", WORDS)
    assert caught.value.problem.code == "quota-exceeded"
    assert recall_or_create(stores.of("bob"), "e", ("r", 1), lambda: "made", WORDS) == "made"
    stores.client.delete(idempotency._name(stores, "a"))  # as at its expiry
    stores.client.zadd(idempotency._names(stores), {idempotency._name(stores, "a"): 1})
    assert client.get("/v1/usage").json()["quotas"]["idempotency_keys"]["used"] == 2
    assert post("d", 0.5).status_code == 201


def test_racing_requests_create_once(stores: Stores) -> None:
    """Exactly one of sixteen requests creates; every success has its response."""
    created: list[int] = []

    def ask(number: int) -> str:
        def create() -> str:
            created.append(number)
            return str(number)

        try:
            return recall_or_create(stores, "k", ("r", 1), create, WORDS)
        except ProblemError as error:
            return error.problem.code

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(ask, range(16)))
    assert len(created) == 1
    assert answers <= {str(created[0]), "idempotency-key-in-use"}


def test_an_expired_claim_does_not_change_its_successor(stores: Stores) -> None:
    """A request beyond its claim neither frees nor overwrites a newer claim; without one its response is stored."""
    name = idempotency._name(stores, "k")

    def slow(successor: bytes | None, *, fails: bool) -> str:
        stores.client.delete(name)
        if successor is not None:
            stores.client.set(name, successor)
        if fails:
            raise refuse("no", 422, "No.", "None.")
        return "slow"

    heir = json.dumps({"asked": "x", "made": "heir"}).encode()
    assert recall_or_create(stores, "k", ("r", 1), lambda: slow(heir, fails=False), WORDS) == "slow"
    assert stores.client.get(name) == heir
    stores.client.delete(name)
    with pytest.raises(ProblemError, match="No"):
        recall_or_create(stores, "k", ("r", 1), lambda: slow(heir, fails=True), WORDS)
    assert stores.client.get(name) == heir
    stores.client.delete(name)
    assert recall_or_create(stores, "k", ("r", 1), lambda: slow(None, fails=False), WORDS) == "slow"
    assert recall_or_create(stores, "k", ("r", 1), lambda: "never", WORDS) == "slow"
