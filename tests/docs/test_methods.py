"""docs/reference/methods.md has a row for whatever method and score there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from docs.figures.methods import likelihood, rows, tables
from glle_engine.methods import METHODS
from glle_engine.metrics.registry import SCORES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")


def test_the_lists_are_those_of_the_registries() -> None:
    """`make methods` writes them; what the code says today is what the page says."""
    assert tables.between(PAGE, "methods") == tables.listing()
    assert tables.between(PAGE, "scores") == tables.score_listing()
    assert len(tables.listing().splitlines()) == 2 + len(METHODS)
    assert len(tables.score_listing().splitlines()) == 2 + len(SCORES)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_was_measured_on_every_set(name: str) -> None:
    """Its row has a score and a time in every column, or the number of the reason why not."""
    line = next(line for line in tables.between(PAGE, "overview").splitlines() if line.startswith(f"| `{name}` |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
    assert len(cells) == len(tables.COLUMNS)
    assert all(" s" in cell or cell.startswith("refused (") or cell == tables.ABSENT for cell in cells)


def test_a_row_has_scores_and_time_or_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PCA of a sheet and of a real set are scored, each by what is known of it; no labels are a refusal."""
    monkeypatch.setattr(rows, "SIZES", (60,))
    np.save(tmp_path / "mocap_run1.npy", np.random.default_rng(0).normal(size=(40, 5)))
    sheet = rows.judge("s_curve", METHODS["pca"], tmp_path)
    real = rows.judge("mocap_run1", METHODS["pca"], tmp_path)
    refused = rows.judge("mocap_run1", METHODS["supervised-lle"], tmp_path)
    assert set(sheet.scores) == {"trustworthiness", "continuity", "procrustes", "affine_r2", "residual_variance"}
    assert set(real.scores) == {"trustworthiness", "continuity", "residual_variance", "gplvm"}
    assert (sheet.n, real.n, refused.n) == (60, 40, 40)
    assert "labels" in refused.refused
    table = tables.overview([sheet, real, refused])
    shown = [f"{sheet.scores[name]:.3f}" for name in ("trustworthiness", "procrustes", "affine_r2")]
    assert f"{', '.join(shown)} in " in table
    assert "refused (1)" in table
    assert f"1. {refused.refused}" in table
    rows.store([sheet, real, refused], tmp_path / "rows.jsonl")
    assert rows.stored(tmp_path / "rows.jsonl") == [sheet, real, refused]


def test_a_slow_method_has_fewer_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest size whose expected time is within the limit, and no more than the method does at all."""
    monkeypatch.setattr(rows, "SIZES", (5000, 150, 60))
    assert rows.judge("s_curve", METHODS["meu"], tmp_path).n == 150
    monkeypatch.setattr(rows, "SECONDS", 0.0)
    assert rows.judge("s_curve", METHODS["pca"], tmp_path).n == 60


def test_the_best_penalty_is_bold() -> None:
    """Once a line; what is refused is said."""
    found = [
        likelihood.Likely("mocap_run1", "drill", "20 0.1", 1200.0),
        likelihood.Likely("mocap_run1", "drill", "20 0.2", 1500.0),
        likelihood.Likely("mocap_run1", "drill", "20 0.3", None, "No."),
    ]
    lines = tables.penalties(found).splitlines()
    assert lines[2:] == ["| 0.1 | 1,200 |", "| 0.2 | **1,500** |", "| 0.3 | refused |"]
