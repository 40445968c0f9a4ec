"""The commands on a running service, from a file to an npy of draws."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from glle_engine import manifolds
from service.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.system.conftest import Up

N = 310


def test_file_to_draws_by_commands(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fit a file, draw into a file and list the job, as text and as JSON."""
    sheet, out = tmp_path / "sheet.npy", tmp_path / "draws.npy"
    np.save(sheet, manifolds.make("s_curve", N, seed=21).X)
    assert main.main(["fit", str(sheet), "-k", "9", "-p", "2", "--method", "direct", "--url", up.url]) == 0
    made = capsys.readouterr()
    id_ = made.out.removesuffix("\n")
    assert id_.split() == [id_]
    assert made.err.startswith(f"{N} points, fitted in ")
    drawing = ["draw", id_, "--n-draws", "3", "--first", "4", "--seed", "2", "--scales", "0.5", "1", "-o", str(out)]
    assert main.main([*drawing, "--dtype", "float32", "--url", up.url]) == 0
    assert capsys.readouterr().out == f"{out}  2 x 3 x {N} x 2, float32\n"
    assert main.main([*drawing, "--json", "--url", up.url]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(out), "shape": [2, 3, N, 2], "dtype": "float64"}
    assert np.isfinite(np.load(out)).all()
    assert main.main(["jobs", "list", "--kind", "draws", "--json", "--url", up.url]) == 0
    job = json.loads(capsys.readouterr().out)[0]
    assert job["posterior"] == id_
    assert main.main(["jobs", "wait", job["id"], "--url", up.url]) == 0
    assert capsys.readouterr().out == f"{job['id']}  draws succeeded\n"
