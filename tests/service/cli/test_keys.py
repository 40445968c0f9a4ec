"""`glle keys`: output and stored keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.cli import main
from worker.base.problems import ProblemError
from worker.base.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from worker.storage.api_keys import KeyStore
    from worker.stores import Stores


@pytest.fixture
def store(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> KeyStore:
    """Return the keys of the servers that the command uses."""
    monkeypatch.setenv("GLLE_REDIS_URL", stores.settings.redis_url)
    monkeypatch.setenv("GLLE_CACHE_URL", stores.settings.cache_url)
    monkeypatch.setattr("worker.storage.api_keys.LOOK_SECONDS", 0.0)
    return stores.keys


def test_create_prints_the_key_alone_on_stdout(store: KeyStore, capsys: pytest.CaptureFixture[str]) -> None:
    """`KEY=$(glle keys create ...)` works, because all other output goes to stderr."""
    options = ["--tenant", "alice", "--scope", "read", "--scope", "write", "--name", "ci", "--expires-days", "30"]
    assert main.main(["keys", "create", *options]) == 0
    printed = capsys.readouterr()
    key = store.verify(printed.out.strip())
    assert (key.tenant, key.scopes, key.name) == ("alice", ("read", "write"), "ci")
    assert key.expires is not None
    assert key.expires in printed.err
    assert "not shown again" in printed.err
    assert printed.out.strip() not in printed.err


def test_the_default_key_reads_for_the_default_tenant(store: KeyStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults are the smallest rights of a key."""
    assert main.main(["keys", "create"]) == 0
    key = store.verify(capsys.readouterr().out.strip())
    assert (key.tenant, key.scopes, key.expires) == ("default", ("read",), None)


def test_list_shows_all_but_the_secrets(store: KeyStore, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each key, without its secret; without keys the heading alone."""
    assert main.main(["keys", "list"]) == 0
    assert capsys.readouterr().out.split() == ["id", "tenant", "scopes", "created", "expires", "name"]
    created = [store.create("alice", ("read",), "laptop", None), store.create("bob", ("admin",), "", 3)]
    assert main.main(["keys", "list"]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()[1:]]
    assert sorted(row[:3] for row in rows) == sorted([key.id, key.tenant, ",".join(key.scopes)] for key, _ in created)
    for key, secret in created:
        assert secret.split("_", 2)[2] not in printed
        assert key.secrets[0].sha256 not in printed


def test_rotate_prints_the_new_key_and_keeps_the_old_one_for_a_day(
    store: KeyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old key is valid for a day by default; zero hours end it at once."""
    key, first = store.create("alice", ("read",), "", None)
    assert main.main(["keys", "rotate", key.id]) == 0
    printed = capsys.readouterr()
    second = printed.out.strip()
    assert "24 hours" in printed.err
    assert store.verify(first) == store.verify(second)
    assert main.main(["keys", "rotate", key.id, "--overlap-hours", "0"]) == 0
    third = capsys.readouterr().out.strip()
    assert store.verify(third).id == key.id
    for former in (first, second):
        with pytest.raises(ProblemError, match="replaced"):
            store.verify(former)


def test_revoke_ends_a_key(store: KeyStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the key, which is no longer valid."""
    key, secret = store.create("alice", ("read",), "", None)
    assert main.main(["keys", "revoke", key.id]) == 0
    assert key.id in capsys.readouterr().err
    with pytest.raises(ProblemError, match="revoked"):
        store.verify(secret)


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
    store: KeyStore, capsys: pytest.CaptureFixture[str], command: list[str], code: int, output: str
) -> None:
    """No key is created, and the exit code is not 0."""
    try:
        assert main.main(["keys", *command]) == code
    except SystemExit as ended:
        assert ended.code == code  # noqa: PT017 # argparse ends some, the command others
    assert output in capsys.readouterr().err
    assert store.all() == []


def test_keys_of_a_stopped_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a running service the command starts its server, where the key stays."""
    where = ["--data-dir", str(tmp_path / "data")]
    assert main.main(["keys", "create", "--tenant", "alice", *where]) == 0
    token = capsys.readouterr().out.strip()
    assert main.main(["keys", "list", *where]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == [token.split("_")[1], "alice"]


def test_a_reachable_service_logs_how_to_create_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    """On loopback no key is needed before the first one."""
    main._check_access(Settings(host="192.0.2.1"))
    assert "`glle keys create`" in capsys.readouterr().err
    main._check_access(Settings())
    assert capsys.readouterr().err == ""
