"""Concurrent clients that compare every answer with the engine's results, bit for bit."""

from __future__ import annotations

import io
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
import numpy as np

from qa.faults.degraded.reference import Array, N, Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = 24  # draws of the job whose result is read
NPY = {"accept": "application/x-npy"}
SECONDS = 40.0  # client timeout, s
PAUSE = 0.25
USERS = 6
READS = ("livez", "list data sets", "read data", "list jobs", "job", "result", "arrays")


class WrongError(AssertionError):
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
        self._made = 0
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
            summary = client.get(f"{self.posterior}/summary?wait=60")
        assert summary.status_code == 200, summary.text
        self.summary = summary.json()

    @contextmanager
    def asking(self, threads: int = USERS, seed: int = 0) -> Iterator[None]:
        """Send requests from this number of threads until the context exits; only the first few request new work."""
        over = threading.Event()

        def ask(number: int) -> None:
            chance = random.Random(f"{seed} {number}")  # noqa: S311 # kind of the next request
            with self._client() as client:
                while not over.is_set():
                    kinds = list(self.kinds if number < USERS else READS)
                    chance.shuffle(kinds)
                    for kind in kinds:
                        if over.is_set():
                            break
                        self.ask(client, kind, chance)
                        time.sleep(PAUSE)

        asking = [threading.Thread(target=ask, args=(number,)) for number in range(threads)]
        for thread in asking:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in asking:
                thread.join()

    def ask(self, client: httpx.Client, kind: str, chance: random.Random) -> Answer:
        """Send one request and judge the answer."""
        begun, wrong = time.monotonic(), ""
        try:
            got = self.kinds[kind](client, chance)
            outcome = _outcome(got)
        except WrongError as error:
            outcome, wrong = "2xx", str(error)
        except httpx.HTTPError as error:
            outcome = f"{type(error).__name__}: {error}"
        answer = Answer(kind, outcome, time.monotonic() - begun, wrong)
        with self._lock:
            self.answers.append(answer)
        return answer

    def all_well(self) -> bool:
        """Send every request once; return whether all answers are 2xx and right."""
        chance = random.Random(time.monotonic_ns())  # noqa: S311 # kind of the request
        with self._client() as client:
            answers = [self.ask(client, kind, chance) for kind in self.kinds]
        return all(answer.outcome == "2xx" and not answer.wrong for answer in answers)

    def unfinished(self) -> dict[str, str]:
        """Return the accepted jobs that have not succeeded, with their states; poll only those."""
        found = {}
        with self._client() as client:
            for job in self.jobs - self.succeeded:
                result = client.get(f"/v1/jobs/{job}")
                if result.is_success and result.json()["status"] == "succeeded":
                    self.succeeded.add(job)
                else:
                    found[job] = result.text[:200]
        return found

    def damaged(self) -> list[str]:
        """Return the stored data sets that differ from the upload."""
        found = []
        with self._client() as client:
            for id_, body in self.uploaded.items():
                got = client.get(f"/v1/datasets/{id_}/data", headers=NPY)
                if got.content != body:
                    found.append(f"{id_}: {got.status_code}, {len(got.content)} bytes")
        return found

    def begin(self) -> None:
        """Clear the recorded answers and accepted ids."""
        self.answers.clear()
        self.jobs.clear()
        self.succeeded.clear()
        self.uploaded.clear()

    def _new(self) -> int:
        with self._lock:
            self._made += 1
            return self._made

    def _accepted(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code in {200, 202} and "status" in answer.json():
            with self._lock:
                self.jobs.add(answer.json()["id"])
        return answer

    def _read_data(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        got = client.get(f"/v1/datasets/{self.dataset}/data", headers=NPY)
        return _equal(got, _npy(self._truth.X))

    def _upload(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        body = _npy(np.random.default_rng([7, self._new()]).normal(size=(40, 3)))
        got = client.post("/v1/datasets", content=body, headers=_UPLOAD)
        if got.is_success:
            with self._lock:
                self.uploaded[got.json()["id"]] = body
        return got

    def _job(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        got = client.get(f"/v1/jobs/{self.job}")
        if got.is_success and got.json()["id"] != self.job:
            raise WrongError(got.text)
        return got

    def _draw(self, client: httpx.Client, chance: random.Random) -> httpx.Response:
        return self._one(client, 0, chance.randrange(COUNT))

    def _new_draw(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        return self._one(client, 1, 8 * self._new())

    def _one(self, client: httpx.Client, seed: int, index: int) -> httpx.Response:
        got = client.get(f"{self.posterior}/draws/{index}?seed={seed}&wait=5", headers=NPY)
        if got.status_code == 202:
            return self._accepted(got)
        return _has(got, (N, 2), self._truth.draw(seed, index))

    def _draws(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        body = {"count": 16, "seed": 2, "first": 16 * self._new()}
        return self._accepted(client.post(f"{self.posterior}/draws", json=body))

    def _result(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        got = client.get(f"/v1/jobs/{self.job}/result?wait=5", headers=NPY)
        return _has(got, (COUNT, N, 2), b"".join(self._truth.draw(0, index) for index in range(COUNT)))

    def _summary(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        got = client.get(f"{self.posterior}/summary?wait=5")
        if got.status_code == 200 and got.json() != self.summary:
            raise WrongError("The summary differs from the reference.")
        return got

    def _arrays(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        got = client.get(f"{self.posterior}/arrays?name=mean", headers=NPY)
        mean = self._truth.posterior.arrays()["mean"]
        return _has(got, mean.shape, mean.tobytes())

    def _fit(self, client: httpx.Client, _chance: random.Random) -> httpx.Response:
        body = {"dataset": self.dataset, "n_neighbors": 6, "reg": 1e-3 * (1 + 1e-4 * self._new())}
        return self._accepted(client.post("/v1/posteriors", json=body))


def uploaded(client: httpx.Client, X: Array) -> str:
    """Upload points; return the id of the data set."""
    answer = client.post("/v1/datasets", content=_npy(X), headers=_UPLOAD)
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def fitted(client: httpx.Client, dataset: str) -> str:
    """Fit a posterior and wait for it; return its path."""
    answer = client.post("/v1/posteriors?wait=60", json={"dataset": dataset})
    assert answer.status_code in {200, 201}, answer.text
    return f"/v1/posteriors/{answer.json()['id']}"


_UPLOAD = {"content-type": "application/x-npy"}


def _npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _equal(got: httpx.Response, body: bytes) -> httpx.Response:
    if got.status_code == 200 and got.content != body:
        raise WrongError(f"{len(got.content)} bytes that differ from the data set.")
    return got


def _has(got: httpx.Response, shape: tuple[int, ...], body: bytes) -> httpx.Response:
    if got.status_code == 200:
        found: Array = np.load(io.BytesIO(got.content))
        if found.shape != shape or found.tobytes() != body:
            raise WrongError(f"An array of shape {found.shape} differs from the engine's of {shape}.")
    return got


def _outcome(got: httpx.Response) -> str:
    """Return the outcome of an answer; a 503 must be a problem document with a remedy and Retry-After."""
    if got.is_success:
        return "2xx"
    if got.headers.get("content-type") != "application/problem+json":
        return f"{got.status_code} without a problem"
    body = got.json()
    if got.status_code == 503 and body["remedy"] and got.headers.get("retry-after"):
        return "503"
    return f"{got.status_code} {body['type'].rpartition(':')[2]}"
