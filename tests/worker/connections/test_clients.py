"""Redis URLs, and retries while a server is unavailable."""

from __future__ import annotations

import re
import signal
import time
import traceback
from typing import TYPE_CHECKING

import pytest
import redis
from rq.timeouts import JobTimeoutException

from worker.base.settings import Settings, SettingsError, rows
from worker.connections import clients
from worker.connections.clients import connect_cache, connect_queue
from worker.connections.retry import CircuitBreaker, RetryPolicy
from worker.observability.live_workers import PATIENCE_SECONDS
from worker.stores import Stores

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://a:1", "GLLE_CACHE_URL is not a Redis URL"),
        ("redis+cluster://a:1", "GLLE_CACHE_URL is not a Redis URL"),
        ("sentinel://a:26379/main/0", "GLLE_CACHE_URL is not a Redis URL"),
        ("redis://a:1?no_such=1", "no_such"),
        ("redis://:p@a:1/abc", "'abc' is not a number"),
        ("redis://:1/abc@a:1/0", "the password or user name has a character reserved"),
        ("redis://a?health_check_interval=often", "health_check_interval"),
        ("rediss://a:1?ssl_ca_certs=/nowhere/ca.pem", "file /nowhere/ca.pem of ssl_ca_certs= cannot be read"),
    ],
)
def test_an_invalid_url_is_refused_at_start(url: str, message: str) -> None:
    """The message names the variable and the invalid part."""
    with pytest.raises(SettingsError, match=message) as caught:
        connect_cache(Settings(cache_url=url))
    assert "GLLE_CACHE_URL" in str(caught.value)


def test_the_queue_may_ask_for_replicas() -> None:
    """The URL of the queue may have `replicas`, which redis-py does not know; the URL of the cache may not."""
    url = "redis://h/0?replicas=1&client_name=x"
    assert clients._parse(url, "GLLE_REDIS_URL") == ("redis://h/0?client_name=x", 1)
    connect_queue(Settings(redis_url=url)).close()
    with pytest.raises(SettingsError, match="GLLE_CACHE_URL has the parameter replicas"):
        connect_cache(Settings(cache_url=url))
    with pytest.raises(SettingsError, match="is not a number"):
        connect_queue(Settings(redis_url="redis://h?replicas=many"))


@pytest.mark.parametrize("login", ["me:12hid/den", "me:hid#den", ":hid?den", "me:hid℀den", ":hid[den", ":hid/den"])
def test_a_password_that_a_url_cannot_hold_is_in_no_message(login: str) -> None:
    """The password is neither in the error, although Python's error quotes the port, nor in `glle settings`."""
    url = f"redis://{login}@a:1"
    row = next(row for row in rows() if row.name == "redis_url")
    assert not re.search("hid|den", row.format(url))
    assert "hid" not in row.format("redis://u:hid@a:1/0?password=hid")
    with pytest.raises(SettingsError, match="%2F") as caught:
        connect_cache(Settings(cache_url=url))
    assert not re.search("hid|den", "".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize(
    ("error", "seconds", "failures"),
    [
        (redis.ConnectionError("away"), 30.0, 4),
        (redis.TimeoutError("late"), 30.0, 4),
        (redis.ReadOnlyError("demoted"), 30.0, 4),
        (redis.ResponseError("Command # 1 (SET a) of pipeline caused error: NOREPLICAS Not enough replicas."), 30.0, 4),
        (redis.ConnectionError("away"), 0.0, 3),  # a request retries twice, quickly
        (redis.AuthenticationError("no"), 30.0, 0),
        (redis.ResponseError("WRONGTYPE"), 30.0, 0),
        (ValueError("x"), 30.0, 0),
    ],
)
def test_transient_errors_are_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, seconds: float, failures: int
) -> None:
    """The connection is closed after each failure, and a long wait is logged. Permanent errors are raised at once."""
    monkeypatch.setattr("worker.connections.retry._LONGEST_PAUSE", 0.01)
    failed: list[Exception] = []

    def ask() -> str:
        if len(failed) == 4:
            return "answer"
        raise error

    def call() -> str:
        return RetryPolicy(seconds, "GLLE_X_URL").call_with_retry(ask, failed.append)

    if failures == 4:
        assert call() == "answer"
        loss, again = (record.message for record in caplog.records)
        assert loss == f"The server of GLLE_X_URL does not answer: {error}"
        assert again == "The server of GLLE_X_URL answers again"
    else:
        with pytest.raises(type(error)):
            call()
    assert (len(failed), RetryPolicy(seconds, "").is_retried(error)) == (failures, failures > 0)


def test_workers_are_patient_and_requests_are_not(tmp_path: Path) -> None:
    """The clients of a worker retry for a minute; the clients of an API process have a circuit breaker."""
    settings = Settings(redis_url="redis://a", cache_url="redis://b", data_dir=str(tmp_path))
    for patient, policy in ((True, RetryPolicy), (False, CircuitBreaker)):
        stores = Stores.connect(settings, patient=patient)
        for client in (stores.client, stores.cache.client):
            retry = client.connection_pool.connection_kwargs["retry"]
            assert isinstance(retry, policy)
            assert not patient or retry._seconds == PATIENCE_SECONDS
        stores.close()


def test_an_interrupted_reply_is_not_read_by_the_next_command(settings: Settings) -> None:
    """A timeout while a reply is read closes the connection."""
    client = connect_queue(settings)

    def time_out(*_: object) -> None:
        raise JobTimeoutException

    before = signal.signal(signal.SIGALRM, time_out)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(JobTimeoutException):
            client.blpop(["glle:nothing"], timeout=0.2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    time.sleep(0.3)  # the late reply has arrived
    assert client.echo("mine") == b"mine"
    client.close()
