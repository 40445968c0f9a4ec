"""Large values that are evicted during reading: the service computes the rest again with the same bits.

The values exceed the buffers between service and client, so eviction hits unread data.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx

from glle_engine import manifolds
from qa.faults.degraded.clients import SECONDS, Answer, fitted, uploaded
from qa.faults.degraded.reference import Truth
from tests.system.arrays import NPY, from_npy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qa.faults.degraded.deployment import Deployment

N, COUNT = 2000, 360  # 11.5 MB of draws
_FIRST = 2**17


def reads(deployment: Deployment) -> Iterator[Answer]:
    """Yield the answers of reading a job's result, the same result during its computation, and a posterior's arrays."""
    truth = Truth(manifolds.make("swiss_roll", N, seed=5).X)
    with httpx.Client(base_url=deployment.url, timeout=3 * SECONDS) as client:
        posterior = fitted(client, uploaded(client, truth.X))
        right = [truth.draw(3, index) for index in range(COUNT)]
        begun = client.post(f"{posterior}/draws", json={"count": COUNT, "seed": 3})
        result = f"/v1/jobs/{begun.json()['id']}/result"
        yield _read(deployment, client, f"{result}?partial=true", b"".join(right))
        yield _read(deployment, client, f"{result}?wait=60", b"".join(right))
        mean = truth.posterior.arrays()["mean"]
        yield _read(deployment, client, f"{posterior}/arrays?name=mean", mean.tobytes())


def _read(deployment: Deployment, client: httpx.Client, path: str, right: bytes) -> Answer:
    """Read slowly while the cache is emptied twice; retry after each Retry-After."""
    started, outcome, wrong = time.monotonic(), "202", ""
    while outcome == "202" and time.monotonic() < started + 3 * SECONDS:
        try:
            outcome, body = _streamed(deployment, client, path)
        except httpx.HTTPError as error:
            outcome, body = f"{type(error).__name__}: {error}", b""
        time.sleep(0.2)
    if outcome == "200":
        outcome = "2xx"
        if from_npy(body).tobytes() != right:
            wrong = f"{len(body)} bytes that differ from the engine's."
    return Answer(path.rpartition("/")[2], outcome, time.monotonic() - started, wrong)


def _streamed(deployment: Deployment, client: httpx.Client, path: str) -> tuple[str, bytes]:
    body, lost = b"", 0
    with client.stream("GET", path, headers=NPY) as answer, deployment.direct(deployment.cache) as cache:
        half = int(answer.headers.get("content-length", 0)) // 2
        for piece in answer.iter_bytes(2**16):
            body += piece
            if answer.status_code == 200 and len(body) > (_FIRST, half)[min(lost, 1)] and lost < 2:
                cache.flushall()
                lost += 1
                time.sleep(0.3)
        return str(answer.status_code), body
