"""The client's calls: what is tried again, and when no more; what is raised."""

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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The client's clock."""
    return Clock(monkeypatch)


def test_client_imports_nothing_of_the_server() -> None:
    """It needs httpx and numpy: no framework, no Redis, no engine; pandas and rich only where they are used."""
    told = subprocess.run(
        [sys.executable, "-c", "import sys, glle; print(*sys.modules)"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    here = {name.partition(".")[0] for name in told}
    assert not here & {"fastapi", "starlette", "pydantic", "redis", "rq", "worker", "glle_engine", "scipy", "pandas"}
    assert [name for name in told if name.startswith(("service", "worker"))] == []


def test_types_are_those_of_the_contract() -> None:
    """glle/types.py is what `make client-types` makes of openapi.json."""
    contract = json.loads(client_types.CONTRACT.read_text(encoding="utf-8"))
    assert client_types.TYPES.read_text(encoding="utf-8") == client_types.types_text(contract)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_refusals_for_now_are_tried_again(clock: Clock, status: int) -> None:
    """A GET is sent again after pauses that double, until it is answered."""
    service = Service(problem(status), problem(status), problem(status), httpx.Response(200, json=INFO))
    assert service.client(clock.retries()).info() == INFO
    assert clock.slept == [0.25, 0.5, 1.0]


def test_lost_connections_are_tried_again(clock: Clock) -> None:
    """So is a request whose answer never came."""
    lost = [httpx.ReadError("gone"), httpx.ConnectError("refused"), httpx.DecodingError("torn")]
    service = Service(*lost, httpx.Response(200, json=INFO))
    assert service.client(clock.retries()).info() == INFO
    assert clock.slept == [0.25, 0.5, 1.0]


def test_retry_after_in_seconds_is_honoured(clock: Clock) -> None:
    """No attempt comes before the service said."""
    service = Service(problem(429, **{"retry-after": "7"}), httpx.Response(200, json=INFO))
    service.client(clock.retries()).info()
    assert clock.slept == [7.0]


def test_retry_after_as_a_date_is_honoured(clock: Clock) -> None:
    """The header may be an HTTP date."""
    service = Service(problem(503, **{"retry-after": formatdate(NOW + 9, usegmt=True)}), httpx.Response(200, json=INFO))
    service.client(clock.retries()).info()
    assert clock.slept == [9.0]


def test_retry_after_that_is_nonsense_is_not_waited_for(clock: Clock) -> None:
    """Then the pause is the client's own."""
    service = Service(problem(503, **{"retry-after": "soon"}), httpx.Response(200, json=INFO))
    service.client(clock.retries()).info()
    assert clock.slept == [0.25]


def test_deadline_ends_the_patience(clock: Clock) -> None:
    """A pause that would end after it is not begun: the last refusal is raised, with what it said."""
    service = Service(problem(429, **{"retry-after": "8"}), problem(429, "quota-exceeded", **{"retry-after": "8"}))
    with pytest.raises(RateLimitedError) as caught:
        service.client(clock.retries(deadline=10)).info()
    assert clock.slept == [8.0]
    assert caught.value.code == "quota-exceeded"


def test_service_that_is_not_there_is_told_soon(clock: Clock) -> None:
    """Nobody waits two minutes to hear that nothing listens; the remedy says what to start."""
    service = Service(*[httpx.ConnectError("refused")] * 9)
    with pytest.raises(UnavailableError, match="glle up") as caught:
        service.client(clock.retries()).info()
    assert sum(clock.slept) <= 5
    assert (caught.value.status, caught.value.details) == (0, {"url": URL})


def test_pauses_are_drawn_by_chance_and_bounded() -> None:
    """Clients that were refused together come back apart, and never after more than the longest pause."""
    half, whole = Retries(chance=lambda: 0.0), Retries(chance=lambda: 1.0)
    refused = Reply(503, {}, b"")
    assert (half.pause(3, 0, refused), whole.pause(3, 0, refused)) == (1.0, 2.0)
    assert whole.pause(1000, 0, refused) == 20.0
    assert Retries(deadline=0).pause(0, 0, refused) is None


def test_post_is_sent_again_under_the_same_key(clock: Clock) -> None:
    """A creating POST has an Idempotency-Key of its own: its repeats are the same request, the next call is not."""
    known = {"id": "post_1", "n": 3, "d": 2}
    answers = [problem(503), httpx.Response(200, json=known), httpx.Response(200, json=known)]
    service = Service(*answers)
    client = service.client(clock.retries())
    assert assert_type(client.fit("ds_1", n_neighbors=5), Posterior).id == "post_1"
    client.fit("ds_1", n_neighbors=5)
    first, again, other = (request.headers["idempotency-key"] for request in service.requests)
    assert first == again != other
    assert json.loads(service.requests[1].content) == {"dataset": "ds_1", "n_neighbors": 5}


def test_upload_is_sent_again_whole(clock: Clock) -> None:
    """A data set is named by its content, so its upload may be repeated; the body begins anew."""
    service = Service(httpx.ReadError("gone"), httpx.Response(201, json=DATASET))
    assert service.client(clock.retries()).dataset([[1, 2], [3, 4], [5, 6]]).id == "ds_1"
    assert service.requests[0].content == service.requests[1].content == npy(np.array([[1, 2], [3, 4], [5, 6]]))


def test_delete_that_was_done_before_its_answer_was_lost_is_done(clock: Clock) -> None:
    """404 to a repeated DELETE is what was wanted; to a first one it is an error."""
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
def test_problem_is_raised_whole(status: int, kind: type[GlleServiceError]) -> None:
    """Every member of the problem, and the id of the request, are the exception's; nothing of it is tried again."""
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


def test_redirect_is_told_not_followed() -> None:
    """Where the address is that of something in between, a key would go elsewhere."""
    service = Service(httpx.Response(308, headers={"location": "https://elsewhere.test/"}))
    with pytest.raises(GlleServiceError, match="308 Permanent Redirect"):
        service.client().info()
    assert len(service.requests) == 1


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[]", b'{"detail": "x"}'])
def test_answer_of_something_else_is_told_as_such(body: bytes) -> None:
    """A proxy's page is an error with its text and a remedy, too."""
    service = Service(httpx.Response(418, content=body))
    with pytest.raises(GlleServiceError, match="418 I'm a Teapot") as caught:
        service.client().info()
    assert (caught.value.status, caught.value.type) == (418, "about:blank")
    assert "URL" in caught.value.remedy


def test_key_is_sent_as_a_bearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As given, or from GLLE_KEY; the address likewise, and neither when there is none."""
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
def test_url_that_is_none_is_refused_at_once(url: str) -> None:
    """With an example of one."""
    with pytest.raises(ValueError, match="such as http://127"):
        Client(url)


def test_problem_of_an_unknown_kind_is_the_base() -> None:
    """A status that no subclass has is still a GlleServiceError."""
    told: Any = problem(418).json()
    assert type(problem_error(told)) is GlleServiceError
