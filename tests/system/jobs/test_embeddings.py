"""Embeddings and comparisons on real workers equal those of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import glle
from glle import Client, InvalidRequestError
from glle_engine import manifolds
from service.cli import main
from tests.conftest import until
from tests.system.conftest import synthetic

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.system.conftest import Up

N = 250
SHEET = manifolds.make("s_curve", N, seed=31)


def test_an_audit_in_python(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The client's audit of a table has the statements, notes, arrays and names of `glle.audit`.

    Audits of a file, a frame and an array with its blocks agree, too. The command prints the level first, the verdict
    and the groups, and writes a row for each point.
    """
    data, group = SHEET.X, np.where(SHEET.X[:, 0] > 0, "late", "early")
    frame = pd.DataFrame(data, columns=["x", "y", "z"]).assign(side=group, who=np.arange(N) // 5)
    sheet = tmp_path / "sheet.csv"
    frame.to_csv(sheet, index=False)
    options: dict[str, Any] = {"method": "pca", "standardize": "zscore"}
    with Client(up.url) as client:
        audit = client.audit(str(sheet), labels="side", blocks="who", **options)
        again = client.audit(frame, labels="side", blocks="who", **options)
        beside = client.audit(data, labels=group, blocks=frame["who"], **options)
        alone = client.audit(data, SHEET.coordinates)
        with pytest.raises(InvalidRequestError, match="rows of coordinates"):
            client.audit(data, SHEET.coordinates[:9])
        with pytest.raises(ValueError, match="blocks='who' names a column"):
            client.audit(data, blocks="who", **options)
    direct = glle.audit(frame, labels="side", blocks="who", **options)
    for each in (audit, again, beside):
        assert (each.level, each.verdict, each.remains, each.pairs) == (
            direct.level, direct.verdict, direct.remains, direct.pairs,
        )  # fmt: skip
    assert [note["message"] for note in again.notes] == [note.message for note in direct.notes]
    assert direct.groups is not None
    assert audit.groups == direct.groups.to_dict()
    for name, array in direct.arrays().items():
        np.testing.assert_allclose(getattr(audit, name), array, rtol=1e-9, err_msg=name)
    assert abs(audit.neighbors - direct.neighbors).max() == 0
    assert (alone.remains, alone.level, alone.stretch.shape) == (None, "unknown", (N,))
    words = ["audit", str(sheet), "--labels", "side", "--blocks", "who", "--method", "pca", "--standardize", "zscore"]
    assert main.main([*words, "--url", up.url]) == 0
    assert capsys.readouterr().out.startswith(f"{direct.level}: {direct.verdict}")


def test_a_running_audit_states_what_it_has_found(up: Up, client: httpx.Client) -> None:
    """Statements of a running audit are marked as preliminary, and their level is "unknown"; the final ones are not."""
    dataset = synthetic(client, 900, seed=32)
    body = {"dataset": dataset, "method": "isomap", "parameters": {"n_neighbors": 12}}
    job = client.post("/v1/audits", json=body).json()
    with Client(up.url) as glle_client:
        running = glle_client.job(job["id"])
        seen: list[Any] = [None]

        def has_stated() -> bool:
            seen.append(running.statements())
            return seen[-1] is not None

        until(has_stated)
        first = seen[-1]
        assert (first.is_preliminary, first.level) == (True, "unknown")
        assert first.verdict.startswith("Preliminary: ")
        final = running.result()
        last: Any = running.statements()
        assert last.verdict == final.verdict
    path = f"{job['links']['self']}/result?points=0"
    stated = client.get(path).json()
    assert (stated["level"], stated["verdict"]) == (final.level, final.verdict)
    assert (stated["is_preliminary"], final.is_preliminary) == (False, False)
    assert "Preliminary" not in final.verdict
    assert final.level != "unknown"


def test_a_comparison_is_cancelled_within_a_method(client: httpx.Client) -> None:
    """A comparison reports the running method, and a cancellation interrupts it."""
    dataset = synthetic(client, 1500, seed=31)
    methods = [{"method": "pca"}, {"method": "sne"}]
    job = client.post(
        "/v1/comparisons", json={"dataset": dataset, "methods": methods, "scores": [], "audit": False}
    ).json()
    path = job["links"]["self"]
    until(lambda: client.get(path).json()["progress"]["stage"].startswith("sne: "))
    assert client.get(path).json()["progress"]["done"] == 1
    assert client.delete(path).json()["status"] == "cancelling"
    assert client.get(path + "?wait=30").json()["status"] == "cancelled"
