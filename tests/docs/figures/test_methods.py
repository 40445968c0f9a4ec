"""Tables of docs/reference/methods.md."""

from pathlib import Path

import numpy as np
import pytest

from docs.figures.methods import rows, tables
from glle_engine.methods import METHODS
from glle_engine.metrics.registry import SCORES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")


def test_the_lists_are_those_of_the_registries() -> None:
    """The page has the generated lists."""
    assert tables.between(PAGE, "methods") == tables.listing()
    assert tables.between(PAGE, "scores") == tables.score_listing()
    assert len(tables.listing().splitlines()) == 2 + len(METHODS)
    assert len(tables.score_listing().splitlines()) == 2 + len(SCORES)


def test_a_row_has_scores_and_time_or_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PCA of a sheet and of a real set has the scores of its kind; missing labels are a refusal."""
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
    assert f"{', '.join(shown)}, n = 60 |" in table
    assert "refused (1)" in table
    assert f"1. {refused.refused}" in table
    rows.keep([sheet, real, refused], tmp_path / "rows.jsonl")
    assert rows.read_rows(tmp_path / "rows.jsonl") == [sheet, real, refused]
