"""Redis URLs, and retries while a server is unavailable."""

from __future__ import annotations

import re
import signal
import time
import traceback
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import redis
from redis.sentinel import Sentinel
from rq.timeouts import JobTimeoutException

from worker.base.settings import Settings, SettingsError, rows
from worker.connections.circuit_breaker import CircuitBreaker
from worker.connections.clients import connect_cache, connect_queue, replicas_of
from worker.connections.retry import RetryPolicy, is_transient
from worker.connections.urls import parse_redis_url
from worker.observability.live_workers import PATIENCE_SECONDS
from worker.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path


def test_sentinels_and_their_service() -> None:
    """Hosts with and without ports, both logins, the database and parameters are parsed."""
    result = parse_redis_url(
        "sentinel://me:p%40ss@a,[::1]:5,b:7/main/3?sentinel_password=other&health_check_interval=9"
    )
    assert (result.service, result.encrypted) == ("main", False)
    assert result.hosts == (("a", 26379), ("::1", 5), ("b", 7))
    assert result.login == {"password": "other"}
    assert result.options == {"username": "me", "password": "p@ss", "db": 3, "health_check_interval": 9}
    assert parse_redis_url("sentinels://a/main").encrypted
    assert parse_redis_url("sentinel://a/main").options["db"] == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://a:1", "GLLE_CACHE_URL is not a Redis URL"),
        ("sentinel://a:26379", "name the service"),
        ("sentinel://a/main/x", "name the service"),
        ("sentinel:///main", "is no host:port"),
        ("sentinel://a:port/main", "is no host:port"),
        ("redis+cluster://a:1", "GLLE_CACHE_URL is not a Redis URL"),
        ("redis://a:1?no_such=1", "no_such"),
        ("sentinel://a/main?no_such=1", "no_such"),
        ("redis://a?health_check_interval=often", "health_check_interval"),
        ("rediss://a:1?ssl_ca_certs=/nowhere/ca.pem", "ssl_ca_certs=/nowhere/ca.pem cannot be read"),
        ("sentinels://a/main?ssl_keyfile=/nowhere/key", "cannot be read"),
    ],
)
def test_an_invalid_url_is_refused_at_start(url: str, message: str) -> None:
    """The message names the variable and the invalid part."""
    with pytest.raises(SettingsError, match=message) as caught:
        connect_cache(Settings(cache_url=url))
    assert "GLLE_CACHE_URL" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "sent", "replicas"),
    [
        ("redis://h/0", "redis://h/0", 0),
        ("redis://h/0?replicas=2", "redis://h/0", 2),
        ("sentinel://a,b/service/0?replicas=1&client_name=x", "sentinel://a,b/service/0?client_name=x", 1),
    ],
)
def test_the_queue_may_ask_for_replicas(url: str, sent: str, replicas: int) -> None:
    """The parameter is not redis-py's; the arrays have none, and another value is refused."""
    settings = Settings(redis_url=url, cache_url=url)
    assert (parse_redis_url(url).url, replicas_of(settings)) == (sent, replicas)
    connect_queue(settings).close()
    if replicas:
        with pytest.raises(SettingsError, match="GLLE_CACHE_URL cannot have replicas"):
            connect_cache(settings)
    with pytest.raises(SettingsError, match="must be a number"):
        connect_queue(Settings(redis_url="redis://h?replicas=many"))


def test_passwords_of_every_form_are_hidden() -> None:
    """`glle settings --current` prints no password."""
    row = next(row for row in rows() if row.name == "redis_url")
    url = "sentinel://u:hidden@a:1,b:2/main/0?sentinel_password=hidden"
    assert "hidden" not in row.format(url)
    assert "a:1,b:2" in row.format(url)


@pytest.mark.parametrize("login", ["me:12hid/den", "me:hid#den", ":hid?den", "me:hid℀den", ":hid[den", ":hid/den"])
@pytest.mark.parametrize("form", ["redis://{}@a:1", "sentinel://{}@a:1/main"])
def test_a_password_that_a_url_cannot_hold_is_in_no_message(form: str, login: str) -> None:
    """Neither Python's URL error, which quotes the port, nor `glle settings` prints it."""
    url = form.format(login)
    row = next(row for row in rows() if row.name == "redis_url")
    assert not re.search("hid|den", row.format(url))
    with pytest.raises(SettingsError, match="%2F") as caught:
        connect_cache(Settings(cache_url=url))
    assert not re.search("hid|den", "".join(traceback.format_exception(caught.value)))


class UnavailableServer:
    """A server that fails a number of times and then replies."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.left, self.failures = error, times, 0

    def ask(self) -> str:
        """Reply or fail."""
        if self.left:
            self.left -= 1
            raise self.error
        return "answer"

    def hang_up(self, _: Exception) -> None:
        """Count the failures."""
        self.failures += 1


PASSING = [
    redis.ConnectionError("away"),
    redis.TimeoutError("late"),
    redis.ReadOnlyError("demoted"),
    redis.ResponseError("Command # 1 (SET a) of pipeline caused error: NOREPLICAS Not enough good replicas to write."),
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_transient_errors_are_retried(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is retried until it succeeds, with a closed connection each time."""
    monkeypatch.setattr("worker.connections.retry._LONGEST_PAUSE", 0.01)
    server = UnavailableServer(error, 4)
    assert RetryPolicy(30.0).call_with_retry(server.ask, server.hang_up) == "answer"
    assert server.failures == 4


@pytest.mark.parametrize("error", [redis.AuthenticationError("no"), redis.ResponseError("WRONGTYPE"), ValueError("x")])
def test_permanent_errors_are_raised_at_once(error: Exception) -> None:
    """Wrong passwords and refused commands are not retried."""
    server = UnavailableServer(error, 1)
    with pytest.raises(type(error)):
        RetryPolicy(30.0).call_with_retry(server.ask, server.hang_up)
    assert (server.left, server.failures) == (0, 0)


def test_a_request_retries_twice() -> None:
    """Two quick retries, then the failure is raised."""
    server = UnavailableServer(redis.ConnectionError("away"), 99)
    with pytest.raises(redis.ConnectionError):
        RetryPolicy(0.0).call_with_retry(server.ask, server.hang_up)
    assert server.failures == 3
    assert not is_transient(ValueError())


def test_workers_are_patient_and_requests_are_not(tmp_path: Path) -> None:
    """Clients of a worker retry for a minute; clients of a request have a breaker."""
    settings = Settings(redis_url="redis://a", cache_url="redis://b", data_dir=str(tmp_path))
    for patient, kind in ((True, RetryPolicy), (False, CircuitBreaker)):
        stores = Stores.connect(settings, patient=patient)
        for client in (stores.client, stores.cache.client):
            retry = client.connection_pool.connection_kwargs["retry"]
            assert isinstance(retry, kind)
            assert not patient or retry._seconds == PATIENCE_SECONDS
        stores.close()


def test_a_broken_connection_looks_up_the_master_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former master may be dead, or may lack later writes."""
    parts = urlsplit(settings.redis_url)
    where = [("127.0.0.1", parts.port)]
    monkeypatch.setattr(Sentinel, "discover_master", lambda *_: where[0])
    client = connect_queue(Settings(redis_url=f"sentinel://:{parts.password}@nowhere/main"))
    connection = client.connection_pool.get_connection()
    assert (connection.port, client.ping()) == (parts.port, True)
    connection.disconnect()  # type: ignore[no-untyped-call] # redis-py's
    where[0] = ("127.0.0.1", 1)
    with pytest.raises(redis.ConnectionError):
        connection.send_command("PING")  # type: ignore[no-untyped-call] # redis-py's
    assert connection.port == 1
    client.close()


def test_an_interrupted_reply_is_not_read_by_the_next_command(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout during a reply closes the connection."""
    parts = urlsplit(settings.redis_url)
    monkeypatch.setattr(Sentinel, "discover_master", lambda *_: ("127.0.0.1", parts.port))
    client = connect_queue(Settings(redis_url=f"sentinel://:{parts.password}@nowhere/main"))

    def time_out(*_: object) -> None:
        raise JobTimeoutException

    before = signal.signal(signal.SIGALRM, time_out)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(JobTimeoutException):
            client.blpop(["glle:nothing"], timeout=0.4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    time.sleep(0.6)  # the late reply has arrived
    assert client.echo("mine") == b"mine"
    client.close()
