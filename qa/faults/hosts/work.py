"""Work for the deployment, and the bits that it must give: those of the engine alone."""

from __future__ import annotations

import io
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import httpx
import numpy as np

import glle_engine
from glle_engine import DrawKey, FitSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from glle_engine import Posterior

NPY = {"accept": "application/x-npy"}
OPEN = frozenset({"queued", "running", "cancelling"})
ASK_SECONDS = 45.0  # longer than any answer may take


@dataclass(frozen=True)
class Job:
    """A draws job that was accepted."""

    id: str
    seed: int
    count: int
    started: float


class Work:
    """Draws jobs on one posterior, each with a separate seed, so that none finds another's draws.

    Parameters
    ----------
    n
        Points of the data set.

    """

    def __init__(self, url: str, n: int) -> None:
        self.url = url
        self._seeds = count(1)
        asked = {"name": "s_curve", "n": n, "noise": 0.05, "seed": n}
        dataset = self.request_json("POST", "/v1/datasets/synthetic", json=asked)["id"]
        result = self.request_json("POST", "/v1/posteriors?wait=60", json={"dataset": dataset})
        self.posterior: str = result["id"]
        values = np.load(io.BytesIO(self.asked("GET", f"/v1/datasets/{dataset}/data", headers=NPY).content))
        self.alone: Posterior = glle_engine.fit(values, FitSpec.from_dict(result["spec"]))

    def asked(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Return an answer; like any client, ask again where there is none, or 503 with Retry-After."""
        deadline = time.monotonic() + 120
        while True:
            with suppress(httpx.TransportError):
                answer = httpx.request(method, self.url + path, timeout=ASK_SECONDS, **more)
                if answer.is_success:
                    return answer
                assert answer.status_code == 503, answer.text
                assert "retry-after" in answer.headers, answer.text
            assert time.monotonic() < deadline, f"{method} {path}: no answer in two minutes"
            time.sleep(0.2)

    def request_json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Return an answer that is JSON."""
        found: dict[str, Any] = self.asked(method, path, **more).json()
        return found

    def start(self, draws: int) -> Job:
        """Ask for draws."""
        seed = next(self._seeds)
        path = f"/v1/posteriors/{self.posterior}/draws"
        headers = {"Idempotency-Key": f"{self.posterior}-{seed}"}
        result = self.request_json("POST", path, json={"count": draws, "seed": seed}, headers=headers)
        return Job(result["id"], seed, draws, time.monotonic())

    def done(self, job: Job) -> int:
        """Return how many draws are made."""
        return int(self.request_json("GET", f"/v1/jobs/{job.id}")["progress"]["done"])

    def status(self, job: Job, seconds: float) -> str:
        """Wait for a job's end, and return how it is then."""
        deadline = time.monotonic() + seconds
        while (status := str(self.request_json("GET", f"/v1/jobs/{job.id}?wait=2")["status"])) in OPEN:
            if time.monotonic() > deadline:
                break
        return status

    def wrong(self, job: Job) -> int:
        """Return how many draws of a job are not, to the last bit, those that the engine makes alone."""
        while (answer := self.asked("GET", f"/v1/jobs/{job.id}/result", headers=NPY)).status_code != httpx.codes.OK:
            time.sleep(0.5)  # what was lost with the cache is made again
        got = np.load(io.BytesIO(answer.content), allow_pickle=False)
        keys = [DrawKey(index, job.seed, 1.0) for index in range(job.count)]
        made = self.alone.draws_of(keys, source="posterior", align="procrustes")
        return sum(not np.array_equal(mine, one.embedding) for mine, one in zip(got, made, strict=True))

    def engine_seconds(self, draws: int) -> float:
        """Return the processor time that the engine takes for as many draws, alone."""
        keys = [DrawKey(index, 0, 1.0) for index in range(draws)]
        began = time.process_time()
        for _ in self.alone.draws_of(keys, source="posterior", align="procrustes"):
            pass
        return time.process_time() - began


@dataclass
class Prober:
    """Asks all the time what needs the queue, the cache and neither, as a client that tries nothing again.

    Attributes
    ----------
    refused
        Answers of 503 with Retry-After: honest ones, while a server is away.
    failed
        What no client should see: another error, a wrong body, or no answer.

    """

    url: str
    posterior: str
    pause: float = 0.2
    answered: int = 0
    refused: int = 0
    slowest: float = 0.0
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(path,), daemon=True) for path in self._paths()]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _paths(self) -> Iterator[str]:
        yield "/livez"
        yield "/v1/jobs?limit=1"
        yield f"/v1/posteriors/{self.posterior}"
        yield f"/v1/posteriors/{self.posterior}/draws/{{index}}?seed=0&wait=5"

    def _ask(self, path: str) -> None:
        for index in count():
            if self._over.wait(self.pause):
                return
            asked, began = path.format(index=index), time.monotonic()
            try:
                answer = httpx.get(self.url + asked, timeout=ASK_SECONDS)
            except httpx.TransportError as error:
                self.failed.append(f"{asked}: {error!r}")
                continue
            self.slowest = max(self.slowest, time.monotonic() - began)
            if answer.is_success:
                self.answered += 1
            elif answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and "retry-after" in answer.headers:
                self.refused += 1
            else:
                self.failed.append(f"{asked}: {answer.status_code} {answer.text}")
