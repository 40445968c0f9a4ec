"""An HTTP client that retries requests as docs/reference/client.md describes, and records attempts in the ledger."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from qa.load.ledger import NO_ANSWER, Attempt

if TYPE_CHECKING:
    import random
    import threading

    from qa.load.ledger import Ledger

RETRY_STATUSES = frozenset({429, 502, 503, 504})
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


@dataclass
class Requester:
    """Sends requests to a service with several URLs, and uses the next URL if there is no answer.

    Parameters
    ----------
    urls
        URLs of the service, or of services with the same data.
    patience
        Time limit of a request with its retries, in seconds; 0: one attempt.
    stop
        Event after which nothing is retried.

    """

    _urls: list[str]
    _ledger: Ledger
    _rng: random.Random
    _patience: float
    _stop: threading.Event
    _client: httpx.Client

    def __post_init__(self) -> None:
        self._at = self._rng.randrange(len(self._urls))

    def ask(self, operation: str, path: str, **request: Any) -> httpx.Response | None:
        """Send a request, with retries; return the last answer, or None if there was none within the time limit.

        Extension ``requested_at`` of the answer is the time of the first attempt. ``deleted_before`` is set if a DELETE
        was retried and is answered with 404, because an attempt without an answer has succeeded.

        Parameters
        ----------
        operation
            Method and resource, such as ``GET draw``, for the ledger.
        path
            Path and query.
        request
            Keyword arguments of `httpx.Client.request`.

        """
        method = operation.partition(" ")[0]
        self._ledger.count_request()
        requested_at = time.time()
        started, pause = time.monotonic(), FIRST_PAUSE
        attempts = 0
        while True:
            answer = self._attempt(operation, method, path, request)
            attempts += 1
            if answer is not None:
                answer.extensions["requested_at"] = requested_at
            if answer is not None and method == "DELETE" and attempts > 1 and answer.status_code == 404:
                answer.extensions["deleted_before"] = True
                return answer
            if answer is not None and not _may_go_better(answer):
                return answer
            wait = max(pause * (0.5 + 0.5 * self._rng.random()), _retry_after(answer))
            if time.monotonic() - started + wait > self._patience or self._stop.wait(wait):
                return answer
            pause = min(2 * pause, LONGEST_PAUSE)

    def _attempt(self, operation: str, method: str, path: str, request: dict[str, Any]) -> httpx.Response | None:
        sent_at, started = time.time(), time.perf_counter()
        answer: httpx.Response | None = None
        try:
            answer = self._client.request(method, self._urls[self._at] + path, **request)
            code = answer.json().get("type", "") if answer.status_code >= 400 else ""
        except (httpx.TransportError, ValueError) as error:
            self._at = (self._at + 1) % len(self._urls)
            code = type(error).__name__
        status = NO_ANSWER if answer is None else answer.status_code
        may_retry = answer is not None and "retry-after" in answer.headers
        self._ledger.record_attempt(Attempt(operation, status, sent_at, time.perf_counter() - started, code, may_retry))
        return answer

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _may_go_better(answer: httpx.Response) -> bool:
    """Return whether a retry may have a better answer: the failure is temporary, and not the end of a job."""
    if answer.status_code not in RETRY_STATUSES:
        return False
    with suppress(ValueError):
        return str(answer.json().get("type", "")).rpartition(":")[2] != "worker-lost"
    return True


def _retry_after(answer: httpx.Response | None) -> float:
    """Return the Retry-After of an answer in seconds; 0 if there is none, or no answer."""
    return 0.0 if answer is None else float(answer.headers.get("retry-after", 0))
