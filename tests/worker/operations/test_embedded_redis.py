"""Embedded Redis servers."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from worker.base.settings import Settings
from worker.operations.embedded_redis import EmbeddedRedis, ServerError, free_port, queue_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """Run a queue server."""
    before = os.umask(0o022)  # the usual one, by which a new file is readable by everyone
    queue = queue_server(Settings(data_dir=str(tmp_path)))
    queue.spawn()
    yield queue.wait()
    queue.stop()
    os.umask(before)


def test_the_password_is_required_and_hidden(server: EmbeddedRedis) -> None:
    """The server requires the password, which no command line contains."""
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    with (
        redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    password = server.url.split(":")[2].partition("@")[0]
    listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout  # noqa: S607 # the command on PATH
    assert password not in listed
    assert str(port) in listed, "the listing contains the server"


def test_queue_survives_kill(server: EmbeddedRedis) -> None:
    """Data survive a kill and a restart at the same address, because writes are on disk before their replies."""
    policy = {"maxmemory-policy": "noeviction", "appendfsync": "always", "appendonly": "yes"}
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        client.set("key", "kept")
        assert client.config_get(*policy) == policy
    url = server.url
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    server.spawn()
    server.wait()
    assert server.url == url
    with redis.Redis.from_url(server.url) as client:
        assert client.get("key") == b"kept"


def test_a_failed_start_reports_the_log(tmp_path: Path) -> None:
    """The error quotes the server's log."""
    broken = EmbeddedRedis(tmp_path / "broken", ("appendonly maybe",))
    broken.spawn()
    with pytest.raises(ServerError, match="did not start"):
        broken.wait()
    assert Path(tmp_path / "broken").exists()


@pytest.mark.usefixtures("server")
def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """Other users cannot read the AOF, which has every record of every tenant."""
    files = [path for path in (tmp_path / "queue").rglob("*") if path.is_file()]
    assert any(path.suffix == ".aof" for path in files)
    assert [path for path in (tmp_path / "queue", *files) if path.stat().st_mode & 0o077] == []


def test_no_outgoing_connection_takes_the_port_of_a_server() -> None:
    """The port is none that the system gives to outgoing connections, and none on which a program listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        ports = {free_port() for _ in range(50)}
        assert taken.getsockname()[1] not in ports
    range_of_system = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(range_of_system.read_text().split()[0]) if range_of_system.exists() else 49_152
    assert max(ports) < first
