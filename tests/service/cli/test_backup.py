"""`glle backup` and `glle restore`, with a running and a stopped service; restored responses are equal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from service.cli.data_folder import connect_stores, lock_data_folder, publish_addresses
from service.cli.main import main
from service.cli.options import StartError
from tests.conftest import stored_files
from worker.base.clock import now_iso
from worker.base.settings import Settings
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.stores import Stores


@pytest.fixture
def _named(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.usefixtures("_named")
def test_restored_responses_are_equal(
    client: httpx.Client, drawn: str, stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bodies and ETags are equal to the last byte; a dry run and --verify list the contents."""
    client.patch(drawn, json={"name": "mine"}, headers={"Content-Type": "application/merge-patch+json"})
    before = answers(client, drawn)
    assert main(["backup", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("glle-*.tar")
    assert path.stat().st_mode & 0o077 == 0
    assert "glle_backup_timestamp_seconds 1." in client.get("/metrics").text
    stores.client.flushall()  # the cache's server still has the arrays
    for file in stored_files(stores):
        file.unlink()
    assert client.get(drawn).status_code == 404
    capsys.readouterr()
    assert main(["backup", "--verify", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data sets"] == {"in the backup": 1}
    assert main(["restore", str(path), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert client.get(drawn).status_code == 404
    assert main(["restore", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == planned
    assert planned["posteriors"]["restored"] == 1
    assert answers(client, drawn) == before
    assert main(["restore", str(path)]) == 0
    assert "there already" in capsys.readouterr().out


@pytest.mark.usefixtures("_named")
def test_refused_backups_and_restores_change_nothing(
    stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid backup file ends with exit code 1, a missing or unwritable one with 2."""
    (tmp_path / "foreign").write_bytes(b"no backup" * 1000)
    assert main(["restore", str(tmp_path / "foreign")]) == 1
    assert main(["backup", "--verify", str(tmp_path / "foreign")]) == 1
    assert main(["restore", str(tmp_path / "absent")]) == 2
    assert main(["backup", str(tmp_path / "absent" / "backup.tar")]) == 2
    said = capsys.readouterr().err
    assert said.count("is no backup of glle") == 2
    assert "cannot be read: No such file" in said
    assert "cannot be written: No such file" in said
    assert stores.client.dbsize() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign"]


def test_running_and_stopped_folders_are_backed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command starts stopped servers for its run, and finds running ones by the file written for the owner."""
    stopped = Settings(data_dir=str(tmp_path))
    with connect_stores(stopped) as stores:
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
        assert main(backup) == 2
    assert "the addresses of its servers cannot be read" in capsys.readouterr().err
    with connect_stores(stopped) as again:
        assert again.client.get("glle:one")


def test_a_locked_folder_is_refused(tmp_path: Path) -> None:
    """A second tree, and a restore during a start, are refused; a URL without its counterpart is, too."""
    with lock_data_folder(tmp_path), pytest.raises(StartError, match="uses"), lock_data_folder(tmp_path):
        pass
    with (
        pytest.raises(StartError, match="Set both"),
        connect_stores(replace(Settings(), redis_url="redis://127.0.0.1:1")),
    ):
        pass


def test_a_missing_folder_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The backup of a misspelled folder is refused."""
    assert main(["backup", str(tmp_path), "--data-dir", str(tmp_path / "misspelled")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "misspelled").exists()
