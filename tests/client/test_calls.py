"""Calls of the client: retries, deadlines, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from email.utils import formatdate
from typing import Any, assert_type

import httpx
import numpy as np
import pytest

from glle import (
    AuthError,
    Client,
    ConflictError,
    GlleServiceError,
    InvalidRequestError,
    NotFoundError,
    Posterior,
    RateLimitedError,
    Retries,
    UnavailableError,
)
from glle.transport.calls import Reply
from glle.transport.errors import problem_error
from openapi import client_types
from tests.client.answers import DATASET, INFO, NOW, URL, Clock, Service, npy, problem


def loaded_packages(statement: str) -> set[str]:
    """Return the packages that a statement loads in a new process."""
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_client_imports_nothing_of_the_server() -> None:
    """It needs httpx and numpy, and imports pandas only for frames."""
    packages = loaded_packages("from glle import AsyncClient, Client, JobTimeoutError")
    server = {"service", "worker", "fastapi", "starlette", "pydantic", "redis", "rq"}
    assert packages & {*server, "glle_engine", "numba", "scipy", "pandas"} == set()
    assert packages >= {"glle", "httpx", "numpy"}


def test_engine_loads_nothing_of_the_client() -> None:
    """`glle.fit` needs no httpx, and `import glle` neither of them."""
    assert loaded_packages("import glle; glle.fit, glle.advise, glle.plot") & {"httpx", "anyio", "rich"} == set()
    assert loaded_packages("import glle; dir(glle)") & {"httpx", "numpy", "glle_engine", "matplotlib"} == set()


def test_command_imports_no_numpy() -> None:
    """`glle worker` sets the number of BLAS threads before numpy reads it."""
    assert loaded_packages("import glle.cli") & {"numpy", "httpx", "rich"} == set()


def test_types_are_those_of_the_contract() -> None:
    """glle/types.py is written from openapi.json."""
    contract = json.loads(client_types.CONTRACT.read_text(encoding="utf-8"))
    assert client_types.TYPES.read_text(encoding="utf-8") == client_types.types_text(contract), "run `make setup`"


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        *[([problem(status)] * 3, [0.25, 0.5, 1.0]) for status in (429, 502, 503, 504)],
        ([httpx.ReadError("gone"), httpx.ConnectError("refused"), httpx.DecodingError("torn")], [0.25, 0.5, 1.0]),
        ([problem(429, **{"retry-after": "7"})], [7.0]),
        ([problem(503, **{"retry-after": formatdate(NOW + 9, usegmt=True)})], [9.0]),
        ([problem(503, **{"retry-after": "soon"})], [0.25]),
    ],
)
def test_temporary_failures_are_retried(clock: Clock, failures: list[Any], pauses: list[float]) -> None:
    """After pauses that double, and not before the Retry-After, in seconds or as a date."""
    service = Service(*failures, httpx.Response(200, json=INFO))
    assert service.client(clock.retries()).info() == INFO
    assert clock.slept == pauses


def test_deadline_ends_the_retries(clock: Clock) -> None:
    """No pause ends after it; the last refusal is raised."""
    service = Service(problem(429, **{"retry-after": "8"}), problem(429, "quota-exceeded", **{"retry-after": "8"}))
    with pytest.raises(RateLimitedError) as caught:
        service.client(clock.retries(deadline=10)).info()
    assert clock.slept == [8.0]
    assert caught.value.code == "quota-exceeded"


def test_missing_service_is_reported_soon(clock: Clock) -> None:
    """The limit for connections is short; the remedy names the command to start."""
    service = Service(*[httpx.ConnectError("refused")] * 9)
    with pytest.raises(UnavailableError, match="glle up") as caught:
        service.client(clock.retries()).info()
    assert sum(clock.slept) <= 5
    assert (caught.value.status, caught.value.details) == (0, {"url": URL})


def test_pauses_are_random_and_bounded() -> None:
    """Clients refused together return at different times, and within the longest pause."""
    least, longest = Retries(chance=lambda: 0.0), Retries(chance=lambda: 1.0)
    refused = Reply(503, {}, b"")
    assert (least.pause(3, 0, refused), longest.pause(3, 0, refused)) == (1.0, 2.0)
    assert longest.pause(1000, 0, refused) == 20.0
    assert Retries(deadline=0).pause(0, 0, refused) is None


def test_repeated_post_has_the_same_key(clock: Clock) -> None:
    """Repetitions of one call share an Idempotency-Key; the next call has another."""
    metadata = {"id": "post_1", "n": 3, "d": 2}
    answers = [problem(503), httpx.Response(200, json=metadata), httpx.Response(200, json=metadata)]
    service = Service(*answers)
    client = service.client(clock.retries())
    assert assert_type(client.fit("ds_1", n_neighbors=5), Posterior).id == "post_1"
    client.fit("ds_1", n_neighbors=5)
    first, again, other = (request.headers["idempotency-key"] for request in service.requests)
    assert first == again != other
    assert json.loads(service.requests[1].content) == {"dataset": "ds_1", "n_neighbors": 5}


def test_repeated_upload_is_complete(clock: Clock) -> None:
    """A data set is named by its content, so its upload is repeatable; the body starts again."""
    service = Service(httpx.ReadError("gone"), httpx.Response(201, json=DATASET))
    assert service.client(clock.retries()).dataset([[1, 2], [3, 4], [5, 6]]).id == "ds_1"
    assert service.requests[0].content == service.requests[1].content == npy(np.array([[1, 2], [3, 4], [5, 6]]))


def test_repeated_delete_accepts_404(clock: Clock) -> None:
    """404 confirms a repeated DELETE; for a first one it is an error."""
    service = Service(httpx.Response(200, json=DATASET), httpx.ReadError("gone"), problem(404), problem(404))
    dataset = service.client(clock.retries()).dataset("ds_1")
    dataset.delete()
    with pytest.raises(NotFoundError):
        dataset.delete()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, AuthError),
        (403, AuthError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, InvalidRequestError),
        (422, InvalidRequestError),
        (500, GlleServiceError),
        (507, GlleServiceError),
    ],
)
def test_error_has_every_member_of_the_problem(status: int, kind: type[GlleServiceError]) -> None:
    """The exception also has the id of the request; the call is not repeated."""
    service = Service(problem(status))
    with pytest.raises(kind) as caught:
        service.client().info()
    error = caught.value
    assert type(error) is kind
    assert (error.type, error.title, error.status) == ("urn:glle:problem:some-code", "A title", status)
    assert (error.detail, error.remedy, error.details) == ("It went wrong.", "Do this.", {"row": 3})
    assert (error.code, error.request_id) == ("some-code", "abc")
    assert str(error) == "It went wrong. Do this."
    assert len(service.requests) == 1


def test_redirect_is_an_error() -> None:
    """A followed redirect could send the key to another server."""
    service = Service(httpx.Response(308, headers={"location": "https://elsewhere.test/"}))
    with pytest.raises(GlleServiceError, match="308 Permanent Redirect"):
        service.client().info()
    assert len(service.requests) == 1


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[]", b'{"detail": "x"}'])
def test_response_of_another_server_is_an_error(body: bytes) -> None:
    """A proxy's page becomes an error with its text and a remedy."""
    service = Service(httpx.Response(418, content=body))
    with pytest.raises(GlleServiceError, match="418 I'm a Teapot") as caught:
        service.client().info()
    assert (caught.value.status, caught.value.type) == (418, "about:blank")
    assert "URL" in caught.value.remedy


def test_key_is_sent_as_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key and address come from the arguments or from GLLE_KEY and GLLE_URL; without a key no header is sent."""
    service = Service(*[httpx.Response(200, json=INFO) for _ in range(3)])
    Client(URL, "glle_k", transport=service.transport).info()
    monkeypatch.setenv("GLLE_KEY", "glle_e")
    monkeypatch.setenv("GLLE_URL", "http://elsewhere.test:81/glle/")
    Client(transport=service.transport).info()
    monkeypatch.delenv("GLLE_KEY")
    monkeypatch.delenv("GLLE_URL")
    Client(transport=service.transport).info()
    assert [request.headers.get("authorization") for request in service.requests] == [
        "Bearer glle_k",
        "Bearer glle_e",
        None,
    ]
    assert str(service.requests[1].url) == "http://elsewhere.test:81/glle/v1/info"
    assert str(service.requests[2].url) == "http://127.0.0.1:8000/v1/info"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "nonsense"])
def test_invalid_url_is_refused_at_once(url: str) -> None:
    """The message has an example."""
    with pytest.raises(ValueError, match="such as http://127"):
        Client(url)


def test_unknown_status_raises_the_base_class() -> None:
    """A status without a subclass is a GlleServiceError."""
    body: Any = problem(418).json()
    assert type(problem_error(body)) is GlleServiceError
