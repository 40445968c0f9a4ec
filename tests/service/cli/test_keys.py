"""`glle keys`: output and stored keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.cli import main
from worker.base.problems import ProblemError
from worker.base.settings import Settings
from worker.tenancy.api_keys import KeyStore

if TYPE_CHECKING:
    from pathlib import Path


def test_create_prints_the_key_alone_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`KEY=$(glle keys create ...)` works, because all other output goes to stderr."""
    options = ["--tenant", "alice", "--scope", "read", "--scope", "write", "--name", "ci", "--expires-days", "30"]
    assert main.main(["keys", "create", *options, "--data-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    key = KeyStore.under(tmp_path).verify(printed.out.strip())
    assert (key.tenant, key.scopes, key.name) == ("alice", ("read", "write"), "ci")
    assert key.expires is not None
    assert key.expires in printed.err
    assert "not shown again" in printed.err
    assert printed.out.strip() not in printed.err


def test_the_default_key_reads_for_the_default_tenant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults are the smallest rights of a key."""
    assert main.main(["keys", "create", "--data-dir", str(tmp_path)]) == 0
    key = KeyStore.under(tmp_path).verify(capsys.readouterr().out.strip())
    assert (key.tenant, key.scopes, key.expires) == ("default", ("read",), None)


def test_list_shows_all_but_the_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each key, without its secret; without keys the heading alone."""
    assert main.main(["keys", "list", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == ["id", "tenant", "scopes", "created", "expires", "name"]
    store = KeyStore.under(tmp_path)
    created = [store.create("alice", ("read",), "laptop", None), store.create("bob", ("admin",), "", 3)]
    assert main.main(["keys", "list", "--data-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()[1:]]
    assert sorted(row[:3] for row in rows) == sorted([key.id, key.tenant, ",".join(key.scopes)] for key, _ in created)
    for key, secret in created:
        assert secret.split("_", 2)[2] not in printed
        assert key.secrets[0].sha256 not in printed


def test_rotate_prints_the_new_key_and_keeps_the_old_one_for_a_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old key is valid for a day by default; zero hours end it at once."""
    store = KeyStore.under(tmp_path)
    key, first = store.create("alice", ("read",), "", None)
    assert main.main(["keys", "rotate", key.id, "--data-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    second = printed.out.strip()
    assert "24 hours" in printed.err
    assert KeyStore.under(tmp_path).verify(first) == KeyStore.under(tmp_path).verify(second)
    assert main.main(["keys", "rotate", key.id, "--overlap-hours", "0", "--data-dir", str(tmp_path)]) == 0
    third = capsys.readouterr().out.strip()
    assert KeyStore.under(tmp_path).verify(third).id == key.id
    for former in (first, second):
        with pytest.raises(ProblemError, match="replaced"):
            KeyStore.under(tmp_path).verify(former)


def test_revoke_ends_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the key, which is no longer valid."""
    key, secret = KeyStore.under(tmp_path).create("alice", ("read",), "", None)
    assert main.main(["keys", "revoke", key.id, "--data-dir", str(tmp_path)]) == 0
    assert key.id in capsys.readouterr().err
    with pytest.raises(ProblemError, match="revoked"):
        KeyStore.under(tmp_path).verify(secret)


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        (["revoke", "none"], 1, "There is no key none. See `glle keys list`"),
        (["rotate", "none"], 1, "There is no key none. See `glle keys list`"),
        (["create", "--tenant", "A B"], 1, "'A B' is no name of a tenant. Use small letters"),
        (["create", "--scope", "all"], 2, "invalid choice: 'all'"),
        (["create", "--expires-days", "-1"], 2, "-1 is not between 0 and 36,500"),
        (["rotate", "x", "--overlap-hours", "nan"], 2, "nan is not between 0 and 36,500"),
        ([], 2, "arguments are required: action"),
    ],
)
def test_invalid_commands_have_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], code: int, output: str
) -> None:
    """No key is created, and the exit code is not 0."""
    where = ["--data-dir", str(tmp_path)] if command else []
    try:
        assert main.main(["keys", *command, *where]) == code
    except SystemExit as ended:
        assert ended.code == code  # noqa: PT017 # argparse ends some, the command others
    assert output in capsys.readouterr().err
    assert KeyStore.under(tmp_path).all() == []


def test_a_service_without_keys_logs_how_to_create_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The warning is logged before the first key, and not afterwards or on loopback."""
    reached = Settings(data_dir=str(tmp_path), host="192.0.2.1")
    main._check_access(reached)
    assert "`glle keys create`" in capsys.readouterr().err
    main._check_access(Settings(data_dir=str(tmp_path)))
    KeyStore.under(tmp_path).create("alice", ("read",), "", None)
    main._check_access(reached)
    assert capsys.readouterr().err == ""
