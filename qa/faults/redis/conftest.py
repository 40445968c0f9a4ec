"""Fixtures of the topology tests: a load that records every answer, event clients, and a table of figures."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

import glle_engine
from glle_engine import DrawKey, FitSpec
from qa.background import repeated
from tests.system.arrays import NPY, from_npy
from tests.system.conftest import fitted, running, synthetic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.system.conftest import Up

POINTS = 1000
FIGURES: list[tuple[str, str]] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, because they take minutes and have a separate target."""
    for item in items:
        if "qa/faults/redis/" in item.path.as_posix():
            item.add_marker(pytest.mark.redis)
            item.add_marker(pytest.mark.timeout(400))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the measured figures."""
    width = max((len(name) for name, _ in FIGURES), default=0)
    for name, value in FIGURES:
        terminalreporter.write_line(f"{name:<{width}}  {value}")


@pytest.fixture
def figure() -> Callable[[str, object], None]:
    """Return a function that adds a figure to the final table."""
    return lambda name, value: FIGURES.append((name, f"{value:.1f} s" if isinstance(value, float) else str(value)))


@dataclass
class Answers:
    """Answers to a load: accepted jobs, statuses, and the time of each."""

    accepted: list[str] = field(default_factory=list)
    statuses: list[tuple[float, int]] = field(default_factory=list)
    without_retry: list[str] = field(default_factory=list)

    def refused(self) -> int:
        """Return the number of failed answers."""
        return sum(status >= 300 for _, status in self.statuses)

    def healed(self, since: float) -> float:
        """Return the seconds from a moment to the first success after the last refusal."""
        last = max((at for at, status in self.statuses if status >= 300), default=since)
        return min((at for at, status in self.statuses if at > last and status < 300), default=float("inf")) - since


@contextmanager
def load(url: str, posterior: str, first: int) -> Iterator[Answers]:
    """Request small jobs without a pause, each of other draws, and record the answers."""
    answers, seeds = Answers(), count(first + 1)

    def post() -> None:
        answer = client.post(posterior + "/draws", json={"count": 2, "seed": next(seeds)})
        answers.statuses.append((time.monotonic(), answer.status_code))
        if answer.status_code in {200, 202}:
            answers.accepted.append(answer.json()["id"])
        elif "retry-after" not in answer.headers:
            answers.without_retry.append(answer.text)

    with httpx.Client(base_url=url, timeout=60) as client, repeated(post, seconds=0.05):
        yield answers


@contextmanager
def followed(url: str, path: str) -> Iterator[list[tuple[str, str]]]:
    """Follow a job's events as a browser does, reconnecting if the connection breaks; yield the (id, name) pairs."""
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        if seen and seen[-1][1] == "end":
            return
        last = {"last-event-id": seen[-1][0]} if seen else {}
        with suppress(httpx.HTTPError), httpx.stream("GET", url + path, headers=last, timeout=60) as answer:
            id_ = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                id_ = value if name == "id" else id_
                if name == "event":
                    seen.append((id_, value))

    with repeated(follow, seconds=0.2):
        yield seen


def outcome(client: httpx.Client, job: str, seconds: float = 120.0) -> str:
    """Return the final status of a job, retrying as the service asks; `lost` if it is unknown."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = client.get(f"/v1/jobs/{job}?wait=5")
        if answer.status_code == 404:
            return "lost"
        if answer.status_code == 200 and (status := str(answer.json()["status"])) not in {
            "queued", "running", "cancelling",
        }:  # fmt: skip
            return status
        time.sleep(0.1 if answer.status_code == 200 else 0.5)
    return "open"


def patiently(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
    """Retry as the service asks, like a client."""
    until = time.monotonic() + 60
    while (answer := client.request(method, path, **options)).status_code == 503 and time.monotonic() < until:
        time.sleep(0.3)
    return answer


def array(client: httpx.Client, path: str) -> bytes:
    """Return the bytes of an array."""
    answer = patiently(client, "GET", path, headers=NPY)
    assert answer.status_code == 200, answer.text
    return from_npy(answer.content).tobytes()


def alone(client: httpx.Client, posterior: str, body: dict[str, int]) -> bytes:
    """Return the bytes of the requested draws, computed by the engine alone."""
    result = client.get(posterior).json()
    data = client.get(f"/v1/datasets/{result['dataset']}/data", headers=NPY)
    fit = glle_engine.fit(from_npy(data.content), FitSpec.from_dict(result["spec"]))
    keys = [DrawKey(index, body["seed"], 1.0) for index in range(body["count"])]
    made = fit.draws_of(keys, source="posterior", align="procrustes")
    return np.stack([draw.embedding for draw in made]).tobytes()


def prepared(client: httpx.Client) -> str:
    """Return the path of the posterior that all tests share."""
    return fitted(client, synthetic(client, POINTS, seed=4))


@contextmanager
def deployed(folder: Path, **settings: str) -> Iterator[tuple[Up, httpx.Client]]:
    """Run the service on the given servers."""
    folder.mkdir(exist_ok=True)
    with running(folder, **settings) as up, httpx.Client(base_url=up.url, timeout=60) as client:
        yield up, client
