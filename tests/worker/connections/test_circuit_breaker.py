"""A server that does not answer is waited for by one, not by all."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import redis

from worker.connections import circuit_breaker
from worker.connections.circuit_breaker import CircuitBreaker, CircuitOpenError
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening.getsockname()[1]


def client(port: int, seconds: float) -> redis.Redis:
    """Return a client that waits so long."""
    return redis.Redis(port=port, socket_timeout=seconds, socket_connect_timeout=seconds, retry=CircuitBreaker(seconds))


def test_a_silent_server_is_not_asked_by_everyone(silent: int) -> None:
    """The first waits its time, once; who comes after it is told at once, on any connection."""
    asking = client(silent, 0.2)
    started = time.monotonic()
    with pytest.raises(redis.TimeoutError):
        asking.ping()
    assert 0.2 <= time.monotonic() - started < 0.4  # not tried again: it was silent
    started = time.monotonic()
    for _ in range(50):
        with pytest.raises(CircuitOpenError):
            asking.ping()
    with asking.pipeline() as together:
        together.ping()
        with pytest.raises(CircuitOpenError):
            together.execute()
    assert time.monotonic() - started < 0.2


def test_after_a_moment_one_tries_again(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many who ask then, one waits."""
    monkeypatch.setattr(circuit_breaker, "AWAY_SECONDS", 0.05)
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
    assert sorted(kind.__name__ for kind in errors) == ["CircuitOpenError"] * 19 + ["TimeoutError"] * 2


def test_it_is_asked_as_ever_when_it_is_back(server_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken connection is made anew at once; a server that was away is near with its first answer."""
    monkeypatch.setattr(circuit_breaker, "AWAY_SECONDS", 0.05)
    stores = Stores.connect(replace(server_settings, data_dir="."))
    assert stores.client.ping()
    keeper = stores.client.connection_pool.get_connection()
    sock = keeper._get_socket()
    assert sock is not None
    sock.shutdown(socket.SHUT_RDWR)
    stores.client.connection_pool.release(keeper)
    assert stores.client.ping()
    retry = stores.client.get_retry()
    assert isinstance(retry, CircuitBreaker)
    retry._away_until = time.monotonic() + 0.05
    with pytest.raises(CircuitOpenError):
        stores.client.ping()
    time.sleep(0.06)
    assert stores.client.ping()
    assert stores.client.ping()
    stores.close()


def test_an_error_is_an_answer(server_settings: Settings) -> None:
    """A server that refuses a command is near."""
    stores = Stores.connect(server_settings)
    for _ in range(3):
        with pytest.raises(redis.ResponseError):
            stores.client.eval("return redis.error_reply('no')", 0)
    assert stores.client.ping()
    stores.close()


def test_a_worker_waits(server_settings: Settings) -> None:
    """Its task has time, and nobody behind it."""
    stores = Stores.connect(server_settings, patient=True)
    assert not isinstance(stores.client.get_retry(), CircuitBreaker)
    assert not isinstance(stores.cache.client.get_retry(), CircuitBreaker)
    stores.close()
