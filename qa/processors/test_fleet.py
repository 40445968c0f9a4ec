"""Workers whose processors differ in their kernels: an id or ETag still never has two contents."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from qa.faults.deployment import run_servers
from qa.processors.__main__ import other_processors
from tests.conftest import until
from tests.system.conftest import START_SECONDS, fit_posterior, synthetic, wait_for_end
from worker.base.settings import Settings
from worker.execution import process_guard
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from qa.faults.deployment import Deployment

pytestmark = [
    pytest.mark.processors,
    pytest.mark.timeout(300),  # five processes start
    pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc"),
]

N, P = 400, 8
BATCH = 12
REQUESTS = 120
ALIGN = ("none", "procrustes")
KERNELS = other_processors()[1:3] or [{}, {}]  # environments of workers


class Fleet:
    """A deployment with two API processes, to which a test adds workers with different BLAS kernels."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.apis = [deployment.api() for _ in range(2)]
        self.stores = Stores.connect(deployment.settings)
        self.cache = self.stores.cache.client


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Yield a deployment without workers."""
    folder = tmp_path_factory.mktemp("fleet")
    with run_servers(folder / "deployment", Settings(heartbeat=1)) as deployment:
        fleet_ = Fleet(deployment)
        yield fleet_
        fleet_.stores.close()


@pytest.fixture(scope="module")
def posteriors(fleet: Fleet) -> list[str]:
    """Start a worker for each kernel, fit two posteriors, and return their paths."""
    for kernel in KERNELS:
        fleet.deployment.start("worker", **kernel)
    until(lambda: fleet.stores.queue.live_workers() == len(KERNELS), START_SECONDS)
    dataset = synthetic(fleet.apis[0], N)
    return [fit_posterior(fleet.apis[0], dataset, n_components=components) for components in (P, P + 1)]


def test_no_id_and_no_etag_has_two_contents(fleet: Fleet, posteriors: list[str]) -> None:
    """Requests to random API processes, with cache flushes between them, return the same bytes."""
    rng = random.Random(0)  # noqa: S311 # no secret
    responses: dict[tuple[str, str], tuple[str, bytes]] = {}
    of_tag: dict[str, bytes] = {}
    jobs = [batch(fleet.apis[0], path) for path in posteriors]
    singles = ["/arrays", "/arrays?name=embedding", *(f"/draws/{i}?wait=60&align={a}" for i in range(3) for a in ALIGN)]
    paths = [*(path + single for path in posteriors for single in singles), *(f"/v1/jobs/{job}/result" for job in jobs)]
    for number in range(REQUESTS):
        if number % 7 == 0:
            fleet.cache.flushall()
        path, accept = rng.choice(paths), rng.choice(["application/json", "application/x-npy"])
        if path.endswith("arrays"):
            accept = "application/zip"
        answer = recompute(rng.choice(fleet.apis), path, accept)
        tag, body = answer.headers["ETag"], answer.content
        assert responses.setdefault((path, accept), (tag, body)) == (tag, body), f"{path} as {accept}"
        assert of_tag.setdefault(tag, body) == body
    assert len(responses) > len(paths)


def batch(client: httpx.Client, path: str) -> str:
    """Run a job of draws to its end, and return its id."""
    job = client.post(f"{path}/draws", json={"n_draws": BATCH, "align": "none"}).raise_for_status().json()
    assert wait_for_end(client, job["id"])["status"] == "succeeded"
    return str(job["id"])


def recompute(client: httpx.Client, path: str, accept: str) -> httpx.Response:
    """Request a path until the answer is 200, because a draw that was evicted is computed again (202)."""
    responses: list[httpx.Response] = []

    def is_there() -> bool:
        responses[:] = [client.get(path, headers={"Accept": accept})]
        assert responses[0].status_code in {200, 202}, responses[0].text
        return responses[0].status_code == 200

    until(is_there)
    return responses[0]
