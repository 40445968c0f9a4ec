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
    """Clock that only sleep advances, and the longest random pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        fake = SimpleNamespace(sleep=self.slept.append, monotonic=lambda: sum(self.slept))
        monkeypatch.setattr("glle.transport.session.time", fake)
        monkeypatch.setattr("random.uniform", max)

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        both = SimpleNamespace(sleep=sleep, to_thread=anyio.to_thread)
        monkeypatch.setattr("glle.transport.session.anyio", both)


class Service:
    """Service that answers from a list and records the requests."""

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
        """Return a client of the service."""
        return Client(URL, progress=False, retries=retries, transport=self.transport)


class Stream:
    """Object that has nothing but an Arrow stream, as a DuckDB relation."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream of the table."""
        return self._table.__arrow_c_stream__(requested_schema)


def problem(status: int, code: str = "some-code", **headers: str) -> httpx.Response:
    """Return a response with a problem."""
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
    """Return a response with a job."""
    metadata = {
        "id": "job_1", "kind": "fit", "status": status, "posterior": "post_1", "error": None,
        "progress": {"done": 1, "total": 2, "stage": "drawing"}, **more,
    }  # fmt: skip
    return httpx.Response(202 if status in {"queued", "running"} else 200, json=metadata)


def posterior(client: Client) -> Any:
    """Return a posterior of a client."""
    return client._session.build("posterior", {"id": "post_1", "n": 3, "dataset": "ds_1"})


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """Return an npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
