"""Draws jobs on one posterior, compared with the engine bit for bit; and constant requests without retries."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

import glle_engine
from glle_engine import DrawKey, FitSpec
from qa.frame import repeat
from tests.system.arrays import NPY, from_npy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine import Posterior

PROBE_SECONDS = 0.2  # between two requests of a probe
ASK_SECONDS = 45.0  # above any answer time of the service, s
OPEN = frozenset({"queued", "running", "cancelling"})


@dataclass
class Probes:
    """Answers to the requests.

    Attributes
    ----------
    refused
        Answers of 503 with Retry-After, which are correct while a server is down.
    failed
        Other errors, wrong bodies, and missing answers.

    """

    answered: int = 0
    refused: int = 0
    slowest: float = 0.0
    failed: list[str] = field(default_factory=list)

    def send(self, url: str, numbers: count[int]) -> None:
        """Send a request, and count its answer."""
        started, url = time.monotonic(), url.format(next(numbers))
        try:
            answer = httpx.get(url, timeout=ASK_SECONDS)
        except httpx.TransportError as error:
            self.failed.append(f"{url}: {error!r}")
            return
        self.slowest = max(self.slowest, time.monotonic() - started)
        if answer.is_success:
            self.answered += 1
        elif answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and "retry-after" in answer.headers:
            self.refused += 1
        else:
            self.failed.append(f"{url}: {answer.status_code} {answer.text}")


@contextmanager
def probe(*urls: str, times: int = 1, seconds: float = PROBE_SECONDS) -> Iterator[Probes]:
    """Send each request constantly, from `times` threads; ``{}`` in a URL is a number that grows."""
    probes = Probes()
    with repeat(*(partial(probes.send, url, count()) for url in urls * times), seconds=seconds):
        yield probes


@dataclass(frozen=True)
class Job:
    """An accepted draws job."""

    id: str
    seed: int
    count: int
    started: float


class Work:
    """Draws jobs on one posterior, each with a separate seed, so that no job finds cached draws.

    Parameters
    ----------
    n
        Number of points of the data set.

    """

    def __init__(self, url: str, n: int) -> None:
        self.url = url
        self._seeds = count(1)
        content = {"name": "s_curve", "n": n, "noise": 0.05, "seed": n}
        dataset = self.request_json("POST", "/v1/datasets/synthetic", json=content)["id"]
        result = self.request_json("POST", "/v1/posteriors?wait=60", json={"dataset": dataset})
        self.posterior: str = result["id"]
        values = from_npy(self.request("GET", f"/v1/datasets/{dataset}/data", headers=NPY).content)
        self.alone: Posterior = glle_engine.fit(values, FitSpec.from_dict(result["spec"]))

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return an answer; retry if there is none, or after a 503 with Retry-After."""
        deadline = time.monotonic() + 120
        while True:
            with suppress(httpx.TransportError):
                answer = httpx.request(method, self.url + path, timeout=ASK_SECONDS, **options)
                if answer.is_success:
                    return answer
                assert answer.status_code == 503, answer.text
                assert "retry-after" in answer.headers, answer.text
            assert time.monotonic() < deadline, f"{method} {path}: no answer in two minutes"
            time.sleep(0.2)

    def request_json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the JSON of an answer."""
        body: dict[str, Any] = self.request(method, path, **options).json()
        return body

    def start(self, draws: int) -> Job:
        """Start a draws job."""
        seed = next(self._seeds)
        path = f"/v1/posteriors/{self.posterior}/draws"
        result = self.request_json("POST", path, json={"n_draws": draws, "seed": seed})
        return Job(result["id"], seed, draws, time.monotonic())

    def probes(self) -> list[str]:
        """Return the URLs of requests that need the queue, the cache, or neither."""
        posterior = f"{self.url}/v1/posteriors/{self.posterior}"
        return [f"{self.url}/livez", f"{self.url}/v1/jobs?limit=1", posterior, posterior + "/draws/{}?seed=0&wait=5"]

    def done(self, job: Job) -> int:
        """Return the number of completed draws."""
        return int(self.request_json("GET", f"/v1/jobs/{job.id}")["progress"]["done"])

    def status(self, job: Job, seconds: float) -> str:
        """Wait for a job's end and return its status."""
        deadline = time.monotonic() + seconds
        while (status := str(self.request_json("GET", f"/v1/jobs/{job.id}?wait=2")["status"])) in OPEN:
            if time.monotonic() > deadline:
                break
        return status

    def wrong(self, job: Job) -> int:
        """Return the number of draws of a job that differ from the engine's in any bit."""
        while (answer := self.request("GET", f"/v1/jobs/{job.id}/result", headers=NPY)).status_code != httpx.codes.OK:
            time.sleep(0.5)  # draws lost with the cache are computed again
        got = from_npy(answer.content)
        keys = [DrawKey(index, job.seed, 1.0) for index in range(job.count)]
        expected = self.alone.draws_of(keys, source="posterior", align="procrustes")
        return sum(not np.array_equal(received, draw.embedding) for received, draw in zip(got, expected, strict=True))
