"""The `glle` command, what does not need a running service."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from service import cli
from worker.settings import table

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI


def test_settings_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Each setting is there with its default and help."""
    assert cli.main(["settings"]) == 0
    printed = capsys.readouterr().out
    for name, default, told in table():
        (line,) = [line for line in printed.splitlines() if line.startswith(name + " ")]
        assert str(default) in line
        assert told in line


def test_port_in_use_is_a_clear_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing is started, the error names the port and the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["up", "--port", str(port), "--data-dir", str(tmp_path / "data")]) == 2
    told = capsys.readouterr().err
    assert str(port) in told
    assert "--port" in told
    assert not (tmp_path / "data").exists()


def test_sockets_know_that_they_are_tcp() -> None:
    """With it asyncio switches Nagle's algorithm off; without, an answer takes 40 ms more."""
    with cli.listen("127.0.0.1", 0) as made:
        assert made.proto == socket.IPPROTO_TCP


def test_the_api_looks_where_its_socket_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `glle up` hands over decides who needs a key, whatever the setting says."""
    settings = {"HOST": "192.0.2.1", "AUTH": "off", "DATA_DIR": str(tmp_path)}
    for name, value in {**settings, "REDIS_URL": "redis://127.0.0.1:1", "CACHE_URL": "redis://127.0.0.1:1"}.items():
        monkeypatch.setenv(f"GLLE_{name}", value)
    served: list[FastAPI] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, **_: served.append(server.config.app))
    assert cli.main(["api"]) == 2  # open to others, by the setting: refused
    assert cli.main(["api", "--fd", str(cli.listen("127.0.0.1", 0).detach())]) == 0
    assert [app.state.stores.settings.host for app in served] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("environment", "command", "told"),
    [
        ({}, ["api", "--port", "0"], "GLLE_REDIS_URL is not set"),
        ({"GLLE_REDIS_URL": "redis://x"}, ["api", "--port", "0"], "GLLE_CACHE_URL is not set"),
        ({"GLLE_REDIS_URL": "redis://x"}, ["up", "--port", "0"], "Set both"),
        ({"GLLE_REDIS_URL": "ftp://x", "GLLE_CACHE_URL": "redis://x"}, ["api"], "not a Redis URL"),
        ({"GLLE_WORKERS": "none"}, ["settings"], "GLLE_WORKERS='none' must be an integer"),
        ({}, ["up", "--workers", "0"], "at least one"),
        ({"GLLE_WORKER": "3"}, ["settings"], "GLLE_WORKER is no setting"),
    ],
)
def test_what_keeps_it_from_starting_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: dict[str, str],
    command: list[str],
    told: str,
) -> None:
    """A setting that is missing, wrong or misspelt is named."""
    for name, _, _ in table():
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code = cli.main(command)
    assert code == (0 if "is no setting" in told else 2)
    assert told in capsys.readouterr().err
