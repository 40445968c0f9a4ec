"""Concurrent clients that compare every answer with the engine's results, bit for bit."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import httpx
import numpy as np

from qa.background import repeated
from qa.faults.degraded.reference import N, Truth
from tests.system.arrays import NPY, UPLOAD, Array, from_npy, to_npy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = 24  # draws of the job whose result is read
SECONDS = 40.0  # client timeout, s
PAUSE = 0.25
USERS = 6
READS = ("livez", "list data sets", "read data", "list jobs", "job", "result", "arrays")


class WrongAnswerError(AssertionError):
    """An answer with wrong content."""


@dataclass(frozen=True)
class Answer:
    """Outcome of one request: ``2xx``, ``503``, or a description."""

    kind: str
    outcome: str
    seconds: float
    wrong: str = ""


class Clients:
    """Client threads that send requests of every kind and judge every answer.

    Parameters
    ----------
    url
        URL of the service.
    truth
        Reference results.

    """

    def __init__(self, url: str, truth: Truth) -> None:
        self._url = url
        self._truth = truth
        self._lock = threading.Lock()
        self._counter = 0
        self.answers: list[Answer] = []
        self.jobs: set[str] = set()  # accepted data sets
        self.succeeded: set[str] = set()
        self.uploaded: dict[str, bytes] = {}
        with self._client() as client:
            self._prepare(client)
        self.kinds: dict[str, Callable[[httpx.Client, random.Random], httpx.Response]] = {
            "livez": lambda client, _: client.get("/livez"),
            "list data sets": lambda client, _: client.get("/v1/datasets"),
            "read data": self._read_data,
            "upload": self._upload,
            "list jobs": lambda client, _: client.get("/v1/jobs"),
            "job": self._job,
            "draw": self._draw,
            "new draw": self._new_draw,
            "draws": self._draws,
            "result": self._result,
            "summary": self._summary,
            "arrays": self._arrays,
            "fit": self._fit,
        }

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, timeout=SECONDS)

    def _prepare(self, client: httpx.Client) -> None:
        """Create the resources that are read later, before any fault."""
        self.dataset = uploaded(client, self._truth.X)
        self.posterior = fitted(client, self.dataset)
        done = client.post(f"{self.posterior}/draws?wait=60", json={"count": COUNT})
        assert done.status_code == 200, done.text
        self.job = done.json()["id"]
        for _ in range(2):
            summary = client.get(f"{self.posterior}/summary?scale=1&wait=60")
        assert summary.status_code == 200, summary.text
        self.summary = summary.json()

    @contextmanager
    def asking(self, threads: int = USERS, seed: int = 0) -> Iterator[None]:
        """Send requests from this number of threads until the context exits; only the first few request new work."""

        def asker(client: httpx.Client, number: int) -> Callable[[], object]:
            chance = random.Random(f"{seed} {number}")  # noqa: S311 # kind of the next request
            pool = list(self.kinds if number < USERS else READS)
            kinds = (kind for _ in count() for kind in chance.sample(pool, len(pool)))
            return lambda: self.ask(client, next(kinds), chance)

        with self._client() as client, repeated(*(asker(client, n) for n in range(threads)), seconds=PAUSE):
            yield

    def ask(self, client: httpx.Client, kind: str, chance: random.Random) -> Answer:
        """Send one request and judge the answer."""
        begun, wrong = time.monotonic(), ""
        try:
            response = self.kinds[kind](client, chance)
            outcome = _outcome(response)
        except WrongAnswerError as error:
            outcome, wrong = "2xx", str(error)
        except httpx.HTTPError as error:
            outcome = f"{type(error).__name__}: {error}"
        answer = Answer(kind, outcome, time.monotonic() - begun, wrong)
        with self._lock:
            self.answers.append(answer)
        return answer

    def is_healthy(self) -> bool:
        """Send every request once; return whether all answers are 2xx and right."""
        chance = random.Random(time.monotonic_ns())  # noqa: S311 # kind of the request
        with self._client() as client:
            answers = [self.ask(client, kind, chance) for kind in self.kinds]
        return all(answer.outcome == "2xx" and not answer.wrong for answer in answers)

    def unfinished(self) -> dict[str, str]:
        """Return the accepted jobs that have not succeeded, with their states; poll only those."""
        findings = {}
        with self._client() as client:
            for job in self.jobs - self.succeeded:
                result = client.get(f"/v1/jobs/{job}")
                if result.is_success and result.json()["status"] == "succeeded":
                    self.succeeded.add(job)
                else:
                    findings[job] = result.text[:200]
        return findings

    def damaged(self) -> list[str]:
        """Return the stored data sets that differ from the upload."""
        findings = []
        with self._client() as client:
            for id_, body in self.uploaded.items():
                response = client.get(f"/v1/datasets/{id_}/data", headers=NPY)
                if response.content != body:
                    findings.append(f"{id_}: {response.status_code}, {len(response.content)} bytes")
        return findings

    def reset(self) -> None:
        """Clear the recorded answers and accepted ids."""
        self.answers.clear()
        self.jobs.clear()
        self.succeeded.clear()
        self.uploaded.clear()

    def _new(self) -> int:
        with self._lock:
            self._counter += 1
            return self._counter

    def _accepted(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code in {200, 202} and "status" in answer.json():
            with self._lock:
                self.jobs.add(answer.json()["id"])
        return answer

    def _read_data(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        response = client.get(f"/v1/datasets/{self.dataset}/data", headers=NPY)
        return _equal(response, to_npy(self._truth.X))

    def _upload(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        body = to_npy(np.random.default_rng([7, self._new()]).normal(size=(40, 3)))
        response = client.post("/v1/datasets", content=body, headers=UPLOAD)
        if response.is_success:
            with self._lock:
                self.uploaded[response.json()["id"]] = body
        return response

    def _job(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        response = client.get(f"/v1/jobs/{self.job}")
        if response.is_success and response.json()["id"] != self.job:
            raise WrongAnswerError(response.text)
        return response

    def _draw(self, client: httpx.Client, chance: random.Random) -> httpx.Response:
        return self._get_draw(client, 0, chance.randrange(COUNT))

    def _new_draw(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        return self._get_draw(client, 1, 8 * self._new())

    def _get_draw(self, client: httpx.Client, seed: int, index: int) -> httpx.Response:
        response = client.get(f"{self.posterior}/draws/{index}?seed={seed}&wait=5", headers=NPY)
        if response.status_code == 202:
            return self._accepted(response)
        return _has(response, (N, 2), self._truth.draw(seed, index))

    def _draws(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        body = {"count": 16, "seed": 2, "first": 16 * self._new()}
        return self._accepted(client.post(f"{self.posterior}/draws", json=body))

    def _result(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        response = client.get(f"/v1/jobs/{self.job}/result?wait=5", headers=NPY)
        return _has(response, (COUNT, N, 2), b"".join(self._truth.draw(0, index) for index in range(COUNT)))

    def _summary(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        response = client.get(f"{self.posterior}/summary?scale=1&wait=5")
        if response.status_code == 200 and response.json() != self.summary:
            raise WrongAnswerError("The summary differs from the reference.")
        return response

    def _arrays(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        response = client.get(f"{self.posterior}/arrays?name=mean", headers=NPY)
        mean = self._truth.posterior.arrays()["mean"]
        return _has(response, mean.shape, mean.tobytes())

    def _fit(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        body = {"dataset": self.dataset, "n_neighbors": 6, "reg": 1e-3 * (1 + 1e-4 * self._new())}
        return self._accepted(client.post("/v1/posteriors", json=body))


def uploaded(client: httpx.Client, X: Array) -> str:
    """Upload points; return the id of the data set."""
    answer = client.post("/v1/datasets", content=to_npy(X), headers=UPLOAD)
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def fitted(client: httpx.Client, dataset: str) -> str:
    """Fit a posterior and wait for it; return its path."""
    answer = client.post("/v1/posteriors?wait=60", json={"dataset": dataset})
    assert answer.status_code in {200, 201}, answer.text
    return f"/v1/posteriors/{answer.json()['id']}"


def _equal(response: httpx.Response, body: bytes) -> httpx.Response:
    if response.status_code == 200 and response.content != body:
        raise WrongAnswerError(f"{len(response.content)} bytes that differ from the data set.")
    return response


def _has(response: httpx.Response, shape: tuple[int, ...], body: bytes) -> httpx.Response:
    if response.status_code == 200:
        findings = from_npy(response.content)
        if findings.shape != shape or findings.tobytes() != body:
            raise WrongAnswerError(f"An array of shape {findings.shape} differs from the engine's of {shape}.")
    return response


def _outcome(response: httpx.Response) -> str:
    """Return the outcome of an answer; a 503 must be a problem document with a remedy and Retry-After."""
    if response.is_success:
        return "2xx"
    if response.headers.get("content-type") != "application/problem+json":
        return f"{response.status_code} without a problem"
    body = response.json()
    if response.status_code == 503 and body["remedy"] and response.headers.get("retry-after"):
        return "503"
    return f"{response.status_code} {body['type'].rpartition(':')[2]}"
