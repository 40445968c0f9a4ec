"""Commands on stored data: keys, and the check of the stored files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from service.cli import doctor
from service.cli.main import _check_access, main
from worker.base.problems import ProblemError
from worker.base.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from worker.storage.api_keys import KeyStore
    from worker.stores import Stores


@pytest.fixture
def _environment(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the app's servers and folder in the environment of the commands."""
    for variable, value in stores.settings.to_env().items():
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize(
    "command",
    [
        ["keys", "list"], ["keys", "revoke", "0"], ["keys", "rotate", "0"], ["scrub"], ["doctor"],
        ["doctor", "--accept-loss"], ["settings", "--current"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_that_makes_no_data_creates_nothing(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run in a folder without a service, such as a misspelled one, a command that makes no data leaves it empty."""
    monkeypatch.setattr(doctor, "engine", lambda _: iter(()))  # takes seconds, and has no folder
    monkeypatch.chdir(tmp_path)
    code = main(command)
    assert list(tmp_path.iterdir()) == []
    if command[0] not in {"doctor", "settings"} or "--accept-loss" in command:
        assert code == 2
        assert "does not exist" in capsys.readouterr().err


@pytest.mark.usefixtures("_environment")
@pytest.mark.parametrize("command", [["keys", "list"], ["scrub"], ["doctor"]], ids=" ".join)
def test_a_command_on_other_servers_creates_no_folder(
    command: list[str], stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the settings name the servers, a command reads Redis, and does not create a missing data folder."""
    stores.keys.create("alice", ("read",), "", None)
    monkeypatch.setenv("GLLE_DATA_DIR", str(tmp_path / "other"))
    main(command)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def store(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> KeyStore:
    """Return the keys of the servers that the command uses."""
    monkeypatch.setenv("GLLE_REDIS_URL", stores.settings.redis_url)
    monkeypatch.setenv("GLLE_CACHE_URL", stores.settings.cache_url)
    monkeypatch.setattr("worker.storage.api_keys.KEY_CHECK_SECONDS", 0.0)
    return stores.keys


def test_create_prints_the_key_alone_on_stdout(store: KeyStore, capsys: pytest.CaptureFixture[str]) -> None:
    """`KEY=$(glle keys create ...)` works, as other output goes to stderr; by default it has the smallest rights."""
    options = ["--tenant", "alice", "--scope", "read", "--scope", "write", "--name", "ci", "--expires-days", "30"]
    assert main(["keys", "create", *options]) == 0
    printed = capsys.readouterr()
    key = store.verify(printed.out.strip())
    assert (key.tenant, key.scopes, key.name) == ("alice", ("read", "write"), "ci")
    assert key.expires is not None
    assert key.expires in printed.err
    assert "not shown again" in printed.err
    assert printed.out.strip() not in printed.err
    assert main(["keys", "create"]) == 0
    key = store.verify(capsys.readouterr().out.strip())
    assert (key.tenant, key.scopes, key.expires) == ("default", ("read",), None)


def test_list_shows_all_but_the_secrets(store: KeyStore, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each key, without its secret; without keys the heading alone."""
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out.split() == ["id", "tenant", "scopes", "created", "expires", "name"]
    created = [store.create("alice", ("read",), "laptop", None), store.create("bob", ("admin",), "", 3)]
    assert main(["keys", "list"]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()[1:]]
    assert sorted(row[:3] for row in rows) == sorted([key.id, key.tenant, ",".join(key.scopes)] for key, _ in created)
    assert main(["keys", "list", "--json"]) == 0
    assert {row["id"] for row in json.loads(capsys.readouterr().out)} == {key.id for key, _ in created}
    for key, secret in created:
        assert secret.split("_", 2)[2] not in printed
        assert key.secrets[0].sha256 not in printed


def test_revoke_ends_a_key(store: KeyStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A rotated key is valid for a day by default, zero hours end it at once; a revoked one is no longer valid."""
    key, first = store.create("alice", ("read",), "", None)
    assert main(["keys", "rotate", key.id]) == 0
    printed = capsys.readouterr()
    second = printed.out.strip()
    assert "24 hours" in printed.err
    assert store.verify(first) == store.verify(second)
    assert main(["keys", "rotate", key.id, "--overlap-hours", "0"]) == 0
    third = capsys.readouterr().out.strip()
    for former in (first, second):
        with pytest.raises(ProblemError, match="replaced"):
            store.verify(former)
    assert store.verify(third).id == key.id
    assert main(["keys", "revoke", key.id]) == 0
    assert key.id in capsys.readouterr().err
    with pytest.raises(ProblemError, match="revoked"):
        store.verify(third)


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        (["revoke", "none"], 1, "There is no key none. See `glle keys list`"),
        (["rotate", "none"], 1, "There is no key none. See `glle keys list`"),
        (["create", "--tenant", "A B"], 1, "'A B' cannot be the name of a tenant. Use at most 40"),
        (["create", "--scope", "all"], 2, "invalid choice: 'all'"),
        (["create", "--expires-days", "-1"], 2, "-1 is not allowed: give a number from 0 to 36,500"),
        (["create", "--expires-days", "0"], 2, "0 days would end the key at once"),
        (["rotate", "x", "--overlap-hours", "nan"], 2, "nan is not allowed: give a number from 0 to 36,500"),
        ([], 2, "arguments are required: action"),
    ],
)
def test_invalid_commands_have_a_remedy(
    store: KeyStore, capsys: pytest.CaptureFixture[str], command: list[str], code: int, output: str
) -> None:
    """No key is created, and the exit code is not 0."""
    try:
        assert main(["keys", *command]) == code
    except SystemExit as ended:
        assert ended.code == code  # noqa: PT017 # argparse ends some, the command others
    assert output in capsys.readouterr().err
    assert store.all() == []


def test_a_reachable_service_logs_how_to_create_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    """On loopback no key is needed before the first one."""
    _check_access(Settings(host="192.0.2.1"))
    assert "`glle keys create`" in capsys.readouterr().err
    _check_access(Settings())
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_environment")
def test_scrub_names_each_damaged_record(
    stores: Stores, drawn_posterior: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`glle scrub` reads the files of every kind of record, and ends with exit code 1 if one is damaged."""
    assert main(["scrub"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["1 data sets read.", "1 posteriors read."]
    id_ = drawn_posterior.rpartition("/")[2]
    record = stores.posteriors.fetch(id_)
    file = stores.files.bucket.local_path(record.file.path)
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert main(["scrub"]) == 1
    assert f"{id_} is damaged" in capsys.readouterr().out
