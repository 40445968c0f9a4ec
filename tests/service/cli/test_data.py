"""Commands on stored data: backup and restore, keys, the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from service.cli.data_folder import connect_stores, publish_addresses
from service.cli.main import _check_access, main
from tests.conftest import stored_files
from worker.base.clock import now_iso
from worker.base.problems import ProblemError
from worker.base.settings import Settings
from worker.operations.backup import LATEST_BACKUP, BackupScope, Writer, dump
from worker.storage.datasets import Table
from worker.storage.posteriors import USED

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.storage.api_keys import KeyStore
    from worker.stores import Stores


@pytest.fixture
def _environment(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the app's servers and folder in the environment of the commands."""
    for variable, value in stores.settings.to_env().items():
        monkeypatch.setenv(variable, value)


def answers(client: httpx.Client, posterior: str) -> dict[str, tuple[int, bytes, str | None]]:
    """Return status, body and ETag of each path."""
    dataset = client.get(posterior).json()["dataset"]
    paths = ["/v1/datasets", f"/v1/datasets/{dataset}/data", "/v1/posteriors", posterior, f"{posterior}/arrays"]
    paths += [f"{posterior}/draws/{i}" for i in range(4)]
    responses = {path: client.get(path, headers={"Accept": "*/*"}) for path in paths}
    return {
        path: (response.status_code, response.content, response.headers.get("ETag"))
        for path, response in responses.items()
    }


@pytest.mark.usefixtures("_environment")
def test_restored_responses_are_equal(
    client: httpx.Client, drawn_posterior: str, stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bodies and ETags are equal to the last byte; a dry run and --verify list the contents."""
    client.patch(drawn_posterior, json={"name": "mine"}, headers={"Content-Type": "application/merge-patch+json"})
    before = answers(client, drawn_posterior)
    assert main(["backup", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("glle-*.tar")
    assert path.stat().st_mode & 0o077 == 0
    assert "glle_backup_timestamp_seconds 1." in client.get("/metrics").text
    stores.client.flushall()  # the cache's server still has the arrays
    for file in stored_files(stores):
        file.unlink()
    assert client.get(drawn_posterior).status_code == 404
    capsys.readouterr()
    assert main(["backup", "--verify", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data sets"] == {"in the backup": 1}
    assert main(["restore", str(path), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert client.get(drawn_posterior).status_code == 404
    assert main(["restore", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == planned
    assert planned["posteriors"]["restored"] == 1
    assert answers(client, drawn_posterior) == before
    assert main(["restore", str(path)]) == 0
    assert "there already" in capsys.readouterr().out


@pytest.mark.usefixtures("_environment")
def test_a_backup_without_its_files_is_reported(
    stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the data folder of another deployment the exit code is 1, and the time of the latest backup stays.

    An existing file is replaced on request alone.
    """
    stores.datasets.add(Table(values=np.ones((2, 2)), source={}))
    (tmp_path / "other").mkdir()
    backup = ["backup", str(tmp_path / "backup.tar")]
    assert main([*backup, "--data-dir", str(tmp_path / "other")]) == 1
    assert "without their files left out: run `glle scrub`" in capsys.readouterr().err
    assert not stores.client.exists(LATEST_BACKUP)
    assert main(backup) == 2
    assert "backup.tar exists. Name another file" in capsys.readouterr().err
    assert main([*backup, "--overwrite"]) == 0
    assert stores.client.exists(LATEST_BACKUP)


@pytest.mark.usefixtures("_environment")
def test_scrub_names_damaged_data_sets(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped bit of one data set is found, and the exit code is 1."""
    damaged, intact = (stores.datasets.add(Table(values=np.full((2, 2), value), source={}))[0] for value in (1.0, 2.0))
    assert main(["scrub"]) == 0
    assert "2 data sets read; 0 damaged." in capsys.readouterr().out
    file = stores.datasets.files.bucket.local_path(damaged.stored["values"].path)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    assert main(["scrub"]) == 1
    printed = capsys.readouterr().out
    assert [f"{dataset.id} is damaged" in printed for dataset in (damaged, intact)] == [True, False]


@pytest.mark.usefixtures("_environment")
def test_refused_backups_and_restores_change_nothing(
    stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid backup file ends with exit code 1, a missing or unwritable one with 2."""
    (tmp_path / "foreign").write_bytes(b"no backup" * 1000)
    assert main(["restore", str(tmp_path / "foreign")]) == 1
    assert main(["backup", "--verify", str(tmp_path / "foreign")]) == 1
    assert main(["restore", str(tmp_path / "absent")]) == 2
    assert main(["backup", str(tmp_path / "absent" / "backup.tar")]) == 2
    assert main(["backup", f"{tmp_path / 'absent'}/"]) == 2
    said = capsys.readouterr().err
    assert said.count("is no backup of glle") == 2
    assert "cannot be read: No such file" in said
    assert "cannot be written: No such file" in said
    assert "absent/ does not exist. Create it" in said
    assert stores.client.dbsize() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign"]


def test_running_and_stopped_folders_are_backed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command starts stopped servers for its run, and finds running ones by the file written for the owner."""
    stopped = Settings(data_dir=str(tmp_path))
    with connect_stores(stopped, is_new=True) as stores:
        stores.client.set("glle:one", now_iso())
        stores.datasets.add(Table(values=np.ones((2, 2)), source={}))
        running = stores.settings
        with publish_addresses(tmp_path, running):
            assert (tmp_path / "servers.json").stat().st_mode & 0o077 == 0
            with connect_stores(stopped) as running_stores:
                assert running_stores.settings.redis_url == running.redis_url
                assert running_stores.client.get("glle:one") == stores.client.get("glle:one")
            backup = ["backup", str(tmp_path / "backup.tar"), "--data-dir", str(tmp_path)]
            assert main(backup) == 0
        assert not (tmp_path / "servers.json").exists()
        assert main([*backup, "--overwrite"]) == 2
    assert "the addresses of its servers cannot be read" in capsys.readouterr().err
    with connect_stores(stopped) as again:
        assert again.client.get("glle:one")


@pytest.mark.parametrize(
    "command",
    [
        ["keys", "list"], ["keys", "revoke", "0"], ["keys", "rotate", "0"], ["store", "show"], ["store", "sweep"],
        ["scrub"], ["backup", "backup.tar"], ["doctor"], ["doctor", "--accept-loss"], ["settings", "--current"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_that_makes_no_data_creates_nothing(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder without a service its folder stays empty, and so does a misspelled folder."""
    monkeypatch.chdir(tmp_path)
    code = main(command)
    assert list(tmp_path.iterdir()) == []
    if command[0] not in {"doctor", "settings"} or "--accept-loss" in command:
        assert code == 2
        assert "has no data of a service, or does not exist" in capsys.readouterr().err


def test_a_dry_restore_creates_nothing(tmp_path: Path, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that no service has used stays as it is; a restore makes it."""
    with (tmp_path / "backup.tar").open("wb") as file:
        dump(stores, Writer(file), BackupScope())
    restore = ["restore", str(tmp_path / "backup.tar"), "--data-dir", str(tmp_path / "new")]
    assert main([*restore, "--dry-run"]) == 2
    assert not (tmp_path / "new").exists()
    assert main(restore) == 0


@pytest.mark.usefixtures("_environment")
@pytest.mark.parametrize(
    "command", [["keys", "list"], ["store", "show"], ["scrub"], ["store", "sweep"], ["doctor"]], ids=" ".join
)
def test_a_command_on_other_servers_creates_no_folder(
    command: list[str], stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the URLs of the servers it reads Redis, and the missing folder of the files is an empty one."""
    stores.keys.create("alice", ("read",), "", None)
    monkeypatch.setenv("GLLE_DATA_DIR", str(tmp_path / "other"))
    main(command)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def store(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> KeyStore:
    """Return the keys of the servers that the command uses."""
    monkeypatch.setenv("GLLE_REDIS_URL", stores.settings.redis_url)
    monkeypatch.setenv("GLLE_CACHE_URL", stores.settings.cache_url)
    monkeypatch.setattr("worker.storage.api_keys.LOOK_SECONDS", 0.0)
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
        (["create", "--tenant", "A B"], 1, "'A B' is no name of a tenant. Use small letters"),
        (["create", "--scope", "all"], 2, "invalid choice: 'all'"),
        (["create", "--expires-days", "-1"], 2, "-1 is not between 0 and 36,500"),
        (["create", "--expires-days", "0"], 2, "0 days would end it at once"),
        (["rotate", "x", "--overlap-hours", "nan"], 2, "nan is not between 0 and 36,500"),
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


def test_unused_posteriors_are_swept(
    stores: Stores, drawn_posterior: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One without a name that is unused for 30 days goes with its draws; an unknown use is one of today."""
    id_ = drawn_posterior.rpartition("/")[2]
    for name, value in stores.settings.to_env().items():
        monkeypatch.setenv(name, value)

    def sweep() -> str:
        assert main(["store", "sweep", "--unused-days", "30"]) == 0
        return capsys.readouterr().out.splitlines()[0]

    stores.client.delete(USED)
    assert sweep().startswith("0 unused posteriors")
    today = stores.client.zscore(USED, id_)
    assert today is not None
    stores.client.zadd(USED, {id_: today - 30})
    stores.posteriors._used.clear()
    assert stores.posteriors.get(id_) is not None
    assert stores.client.zscore(USED, id_) == today
    stores.client.zadd(USED, {id_: today - 30})
    stores.posteriors.rename(id_, {"name": "kept"})
    assert sweep().startswith("0 unused posteriors")
    stores.posteriors.rename(id_, {"name": None})
    stores.client.zadd(USED, {id_: today - 30})
    assert sweep().startswith("1 unused posteriors removed")
    assert not stores.posteriors.exists(id_)
    assert not list(stores.cache.client.scan_iter(match=f"*{id_}*"))
    assert not stores.client.exists(USED)
