"""Circuit breaker: one request waits for a silent server, all others fail at once."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import redis

from tests.worker.execution.workers import raiser
from worker.connections import retry
from worker.connections.retry import CircuitBreaker, CircuitOpenError
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Listen on a port that takes connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        listening.settimeout(0)
        yield listening


def client(listening: socket.socket, seconds: float) -> redis.Redis:
    """Return a client with a socket timeout in seconds."""
    port, breaker = listening.getsockname()[1], CircuitBreaker(seconds, "GLLE_REDIS_URL")
    return redis.Redis(port=port, socket_timeout=seconds, socket_connect_timeout=seconds, retry=breaker)


def test_requests_to_a_silent_server_fail_at_once(silent: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    """The first request waits for its timeout, which is logged once; later requests fail without a connection."""
    asking = client(silent, 0.2)
    with pytest.raises(redis.TimeoutError):
        asking.ping()
    for _ in range(50):
        with pytest.raises(CircuitOpenError):
            asking.ping()
    with asking.pipeline() as together:
        together.ping()
        with pytest.raises(CircuitOpenError):
            together.execute()
    assert [record.message[:45] for record in caplog.records] == ["The server of GLLE_REDIS_URL does not answer:"]
    silent.accept()[0].close()
    with pytest.raises(BlockingIOError):
        silent.accept()


def test_one_request_probes_the_server_after_the_rest(silent: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many concurrent requests, one waits for the server, and the others fail at once."""
    monkeypatch.setattr(retry, "AWAY_SECONDS", 0.05)
    asking, errors = client(silent, 0.3), []

    def ask() -> None:
        with pytest.raises(redis.RedisError) as caught:
            asking.ping()
        errors.append(caught.type)

    ask()
    time.sleep(0.1)
    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(error_class.__name__ for error_class in errors) == ["CircuitOpenError"] * 19 + ["TimeoutError"] * 2


def test_another_trial_follows_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the socket timeout after a trial has begun, another call may try; until then all calls fail at once."""
    now = 100.0
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: now, sleep=None))
    breaker = CircuitBreaker(3.0, "GLLE_REDIS_URL")
    assert not breaker._require_closed()
    with pytest.raises(redis.TimeoutError):
        breaker.call_with_retry(raiser(redis.TimeoutError()), lambda *_: None)
    for seconds in (retry.AWAY_SECONDS, 6.0, 6.0):
        now += seconds - 0.1
        with pytest.raises(CircuitOpenError):
            breaker._require_closed()
        now += 0.1
        assert breaker._require_closed()


def test_a_returned_server_closes_the_breaker(server_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken connection is renewed at once; the first reply closes the breaker."""
    monkeypatch.setattr(retry, "AWAY_SECONDS", 0.05)
    stores = Stores.connect(replace(server_settings, data_dir="."))
    assert stores.client.ping()
    keeper = stores.client.connection_pool.get_connection()
    sock = keeper._get_socket()
    assert sock is not None
    sock.shutdown(socket.SHUT_RDWR)
    stores.client.connection_pool.release(keeper)
    assert stores.client.ping()
    breaker = stores.client.get_retry()
    assert isinstance(breaker, CircuitBreaker)
    breaker._away_until = time.monotonic() + 0.05
    with pytest.raises(CircuitOpenError):
        stores.client.ping()
    time.sleep(0.06)
    assert stores.client.ping()
    assert stores.client.ping()
    stores.close()
