"""Data sets with changed bits on disk: problems for clients, and `glle scrub`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from service.cli import main
from tests.conftest import stored_files
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    import pytest

    from worker.stores import Stores

X = np.random.default_rng(0).normal(size=(50, 3))


def flip_last_bit(path: Path) -> None:
    """Change one bit of the last value."""
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def test_damaged_data_are_a_problem_in_every_form(client: httpx.Client, stores: Stores) -> None:
    """The response has no ETag and is not cached; the same upload repairs the data."""
    body = "\n".join(",".join(map(repr, row)) for row in X.tolist())
    csv = {"Content-Type": "text/csv"}
    id_ = client.post("/v1/datasets", content=body, headers=csv).json()["id"]
    path = f"/v1/datasets/{id_}/data"
    good = client.get(path, headers={"Accept": "application/x-npy"})
    assert good.status_code == 200
    flip_last_bit(*stored_files(stores))
    for media in ("application/x-npy", "application/json", "text/csv", "application/zip"):
        answer = client.get(path, headers={"Accept": media})
        assert (answer.status_code, answer.json()["type"]) == (500, "urn:glle:problem:dataset-damaged")
        assert "etag" not in answer.headers
    assert client.post("/v1/datasets", content=body, headers=csv).status_code == 200
    again = client.get(path, headers={"Accept": "application/x-npy"})
    assert (again.content, again.headers["etag"]) == (good.content, good.headers["etag"])


def test_scrub_names_damaged_data(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command reads all tenants' data sets; its exit code serves timers."""
    for variable, value in stores.settings.to_env().items():
        monkeypatch.setenv(variable, value)
    table = Table(values=X, source={"kind": "test"})
    datasets = [stores.datasets.of(tenant).add(table)[0] for tenant in ("alice", "default")]
    ids = [dataset.id for dataset in datasets]
    assert main.main(["scrub"]) == 0
    assert "2 data sets" in capsys.readouterr().out
    flip_last_bit(stores.datasets.files.bucket.local_path(datasets[0].stored["values"].path))
    assert main.main(["scrub"]) == 1
    printed = capsys.readouterr().out
    assert f"{ids[0]} is damaged" in printed
    assert ids[1] not in printed
