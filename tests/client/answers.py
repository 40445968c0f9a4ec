"""A fake service with a list of responses, a fake clock, and an Arrow stream, for tests of the client."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import numpy as np

from glle import Client, Retries

if TYPE_CHECKING:
    import pytest

URL = "http://glle.test"
INFO: Any = {"name": "glle"}
DATASET = {"notices": [], "id": "ds_1", "n": 3, "n_features": 2, "names": None}


class Clock:
    """Fake clock of the client: only `sleep` advances it, and each random pause is the longest possible."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        fake = SimpleNamespace(sleep=self.slept.append, monotonic=lambda: 1000 + sum(self.slept))
        monkeypatch.setattr("glle.transport.session.time", fake)
        monkeypatch.setattr("random.uniform", max)

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        both = SimpleNamespace(sleep=sleep, to_thread=anyio.to_thread)
        monkeypatch.setattr("glle.transport.session.anyio", both)


class Service:
    """Fake service that gives the listed answers one after another, and records the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, retries: Retries | None = None) -> Client:
        """Return a client whose requests this fake service answers."""
        return Client(URL, progress=False, retries=retries, transport=self.transport)


class Stream:
    """Table that offers nothing but an Arrow stream, as a DuckDB relation does."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream of the table."""
        return self._table.__arrow_c_stream__(requested_schema)


def problem(status: int, code: str = "some-code", **headers: str) -> httpx.Response:
    """Return an error response in the form of the service, with the request id "abc"."""
    body = {
        "type": f"urn:glle:problem:{code}",
        "title": "A title",
        "status": status,
        "detail": "It went wrong.",
        "remedy": "Do this.",
        "detail_parts": ["It went wrong."],
        "remedy_parts": ["Do this."],
        "details": {"row": 3},
    }
    return httpx.Response(status, json=body, headers={"x-request-id": "abc", **headers})


def job(status: str, **more: Any) -> httpx.Response:
    """Return a response that holds the job "job_1" with this status; `more` replaces members of its record."""
    metadata = {
        "id": "job_1", "kind": "fit", "status": status, "posterior": "post_1", "error": None,
        "progress": {"done": 1, "total": 2, "stage": "drawing"}, **more,
    }  # fmt: skip
    return httpx.Response(202 if status in {"queued", "running"} else 200, json=metadata)


def posterior(client: Client) -> Any:
    """Return the client's object for the posterior "post_1" of three points, without a request."""
    return client._session.build("posterior", {"id": "post_1", "n": 3, "dataset": "ds_1"})


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of an npy file with this array."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
