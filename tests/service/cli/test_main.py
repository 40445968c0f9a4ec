"""The `glle` command without a running service."""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from docs.figures import settings as settings_page
from service.cli import main, options
from tests.system.conftest import glle
from worker.base.settings import Settings, rows
from worker.connections.clients import require_login

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI

    from worker.stores import Stores


AWAY = {"GLLE_REDIS_URL": "redis://127.0.0.1:1", "GLLE_CACHE_URL": "redis://127.0.0.1:1"}

NO_FILES = {"GLLE_DATA_DIR": "/proc/0", "GLLE_ALIVE_FILE": "/proc/0/alive"}


def test_settings_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has each setting with its default and help."""
    assert main.main(["settings"]) == 0
    printed = capsys.readouterr().out
    for row in rows():
        (line,) = [line for line in printed.splitlines() if line.startswith(row.variable + " ")]
        assert row.format(row.default) in line
        assert row.help in line


def test_every_setting_is_a_flag_of_every_program(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of up, serve and worker names each flag of the table."""
    for command in ("up", "serve", "worker", "api"):
        with pytest.raises(SystemExit):
            main.main([command, "--help"])
        output = capsys.readouterr().out
        assert [row.flag for row in rows() if f"{row.flag} " not in output] == []


def test_flags_take_precedence_over_variables() -> None:
    """A flag takes precedence over the environment, and the environment over the default; types are equal."""
    parser = argparse.ArgumentParser()
    main.add_commands(parser.add_subparsers())
    chosen = parser.parse_args(["up", "--max-points", "7", "--drain", "0.5"])
    read = options.settings_of(chosen, {"GLLE_MAX_POINTS": "8", "GLLE_PORT": "9000"})
    assert (read.max_points, read.drain, read.port, read.workers) == (7, 0.5, 9000, Settings().workers)


def test_current_settings_show_no_password(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of a URL is shown without its password; set variables are marked."""
    monkeypatch.setenv("GLLE_REDIS_URL", "redis://me:hidden@host:6379/0?password=hidden")
    monkeypatch.setenv("GLLE_CACHE_URL", "hidden")
    assert main.main(["settings", "--current"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(rows())
    (line,) = [line for line in lines if line.startswith("GLLE_REDIS_URL ")]
    assert line.split() == ["GLLE_REDIS_URL", "redis://***@host:6379/0?***", "set"]
    assert "hidden" not in "".join(lines)
    with pytest.raises(SystemExit):
        main.main(["up", "--help"])
    assert "hidden" not in capsys.readouterr().out


def test_settings_page_is_up_to_date() -> None:
    """docs/reference/settings.md is what `make generate` writes."""
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page()


def test_port_in_use_is_a_clear_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No process is started; the error names the port and the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        assert main.main(["up", "--port", str(port), "--data-dir", str(tmp_path / "data")]) == 2
    output = capsys.readouterr().err
    assert str(port) in output
    assert "--port" in output
    assert not (tmp_path / "data").exists()


def test_commands_use_one_blas_thread() -> None:
    """The variables are set before the first import of numpy, which reads them once."""
    imports = "import os, sys; from service.cli import BLAS_VARIABLES"
    code = f"{imports}; assert 'numpy' not in sys.modules; print(*map(os.getenv, BLAS_VARIABLES))"
    ran = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1"] * 3


def test_an_api_process_loads_no_library_that_only_tasks_use() -> None:
    """Each of them would take a tenth of a second or more at each start."""
    code = "import sys; from service.cli.supervisor import load_api; load_api(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "service.app" in loaded
    tasks = {"scipy.optimize", "scipy.spatial", "scipy.special", "scipy.stats", "scipy.cluster", "scipy.interpolate"}
    libraries = {
        "sklearn",
        "umap",
        "openTSNE",
        "pacmap",
        "faiss",
        "pandas",
        "pyarrow",
        "matplotlib",
        "anndata",
        "httpx",
    }
    assert loaded & (tasks | libraries) == set()


def test_the_compiler_s_switch_is_an_error_without_a_traceback() -> None:
    """The engine does not run without compiled code; commands of the server say so."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "service.cli", "doctor", "--port", "0"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("glle: NUMBA_DISABLE_JIT is set")
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("command", ["serve", "worker", "scrub"])
def test_a_wrong_password_is_reported_at_once(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A command does not wait for a server that refuses the password, unlike for a server that does not answer."""
    settings = stores.settings
    wrong = re.sub("//.*@", "//:wrong@", settings.redis_url)
    assert require_login(replace(settings, cache_url=AWAY["GLLE_CACHE_URL"])) == ["GLLE_CACHE_URL"]
    for name, value in replace(settings, redis_url=wrong, port=0).to_env().items():
        monkeypatch.setenv(name, value)
    assert main.main(command.split()) == 2
    assert "The server of GLLE_REDIS_URL refuses the login (" in capsys.readouterr().err


def test_the_address_of_the_socket_decides_about_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The socket that `glle up` passes on decides whether a key is needed, for any setting."""
    settings = {"HOST": "192.0.2.1", "AUTH": "off", "DATA_DIR": str(tmp_path)}
    for name, value in {**settings, "REDIS_URL": "redis://127.0.0.1:1", "CACHE_URL": "redis://127.0.0.1:1"}.items():
        monkeypatch.setenv(f"GLLE_{name}", value)
    served: list[FastAPI] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, **_: served.append(server.config.app))
    assert main.main(["api"]) == 2  # open to others, by the setting: refused
    assert main.main(["api", "--fd", str(main.listen("127.0.0.1", 0).detach())]) == 0
    assert [app.state.stores.settings.host for app in served] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("environment", "command", "output"),
    [
        ({}, ["api", "--port", "0"], "GLLE_REDIS_URL is not set"),
        ({"GLLE_REDIS_URL": "redis://x"}, ["api", "--port", "0"], "GLLE_CACHE_URL is not set"),
        ({"GLLE_REDIS_URL": "redis://x"}, ["up", "--port", "0"], "Set both"),
        ({"GLLE_REDIS_URL": "redis://127.0.0.1:1"}, ["keys", "list"], "Set both"),
        ({"GLLE_REDIS_URL": "ftp://x", "GLLE_CACHE_URL": "redis://x"}, ["api"], "not a Redis URL"),
        ({}, ["up", "--host", "198.51.100.1"], "Set GLLE_HOST to an address of this machine."),
        (AWAY, ["keys", "list"], "The server of GLLE_REDIS_URL and GLLE_CACHE_URL does not answer as it should: Error"),
        (AWAY, ["scrub"], "connecting to 127.0.0.1:1. Connection refused. `glle doctor` checks it."),
        ({"GLLE_WORKERS": "none"}, ["settings"], "GLLE_WORKERS='none' must be an integer"),
        ({}, ["up", "--workers", "0"], "--workers 0 must be an integer of at least 1."),
        ({"GLLE_LOG_FORMAT": "xml"}, ["settings"], "GLLE_LOG_FORMAT='xml' must be one of text, json."),
        ({}, ["serve", "--redis-url", "redis://:hidden@x"], "set GLLE_REDIS_URL instead"),
        ({"GLLE_WORKER": "3"}, ["settings"], "GLLE_WORKER is not a setting"),
        ({"GLLE_WORKER": "3", "GLLE_LOG_FORMAT": "json"}, ["settings"], '"message": "GLLE_WORKER is not a setting'),
        ({**AWAY, **NO_FILES}, ["serve"], "GLLE_ALIVE_FILE='/proc/0/alive' cannot be written: No such file"),
        ({**AWAY, **NO_FILES}, ["serve"], "/proc/0 cannot be written"),
        ({**AWAY, **NO_FILES}, ["worker"], "GLLE_ALIVE_FILE='/proc/0/alive' cannot be written: No such file"),
    ],
)
def test_start_errors_name_the_setting(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: dict[str, str],
    command: list[str],
    output: str,
) -> None:
    """A missing, wrong or misspelled setting is named."""
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code = main.main(command)
    assert code == (0 if "is not a setting" in output else 2)
    assert output in capsys.readouterr().err


COMMANDS = {
    "serve": ["serve"], "worker": ["worker"], "keys list": ["keys", "list"], "keys create": ["keys", "create"],
    "scrub": ["scrub"],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_works_on_a_loss(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """After a loss, each command ends with `CANNOT_START` and names the remedy; no key is created."""
    stores.keys.create("alice", ("read",), "", None)
    stores.mark.renew()
    stores.client.flushall()
    environment = {**stores.settings.to_env(), "GLLE_PORT": "0", "GLLE_API_PROCESSES": "1"}
    if is_head := command in {"serve", "worker"}:
        ended = glle(*COMMANDS[command], **environment)
        code, output, errors = ended.returncode, ended.stdout, ended.stderr
    else:  # no process is started
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = main.main(COMMANDS[command])
        output, errors = capsys.readouterr()
    assert code == options.CANNOT_START
    assert "At 20" in errors
    assert "had records (keys: 1)" in errors
    assert "`glle doctor --accept-loss`" in errors
    assert ("It does not start." in errors) == is_head
    assert output == ""
    assert stores.keys.all() == []
