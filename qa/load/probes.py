"""Requests that are sent again and again without retries, to see how a service answers during a fault."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import httpx

from qa.frame import repeat

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBE_SECONDS = 0.2  # pause between two requests of a thread
ASK_SECONDS = 45.0  # longer than any answer of the service takes


@dataclass
class Probes:
    """Answers to the requests that are sent again and again.

    Attributes
    ----------
    answered
        Number of answers without error.
    refused
        Number of answers with 503 and Retry-After, which are right while a server is down.
    slowest
        Seconds of the slowest answer.
    failed
        Other errors and missing answers, as texts.

    """

    answered: int = 0
    refused: int = 0
    slowest: float = 0.0
    failed: list[str] = field(default_factory=list)

    def send(self, url: str, numbers: count[int]) -> None:
        """Send a GET request, and count its answer; ``{}`` in the URL becomes the next of `numbers`."""
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
    """Send a GET request to each URL again and again during the context, from `times` threads; yield the counts.

    ``{}`` in a URL stands for a number that grows with each request.
    """
    probes = Probes()
    with repeat(*(partial(probes.send, url, count()) for url in urls * times), seconds=seconds):
        yield probes
