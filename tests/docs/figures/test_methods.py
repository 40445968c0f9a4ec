"""Tables of docs/reference/methods.md."""

from pathlib import Path

import pytest

from docs.figures.methods import rows, tables
from glle_engine.methods import METHODS
from glle_engine.metrics.registry import SCORES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")


def test_the_lists_are_those_of_the_registries() -> None:
    """docs/reference/methods.md holds the lists that are generated from the registries."""
    assert tables.between(PAGE, "methods") == tables.listing()
    assert tables.between(PAGE, "scores") == tables.score_listing()
    assert [name for name in METHODS if f"\n| `{name}` | " not in tables.listing()] == []
    assert len(tables.score_listing().splitlines()) == 2 + len(SCORES)


def test_a_row_has_scores_and_time_or_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of PCA has its scores and time on both data sets; a method that refuses has its reason."""
    monkeypatch.setattr(rows, "SIZES", (60,))
    sheet = rows.judge("swiss_roll", METHODS["pca"])
    digits = rows.judge("digits", METHODS["pca"])
    monkeypatch.setattr(rows, "NEIGHBORS", 60)
    refused = rows.judge("swiss_roll", METHODS["lle"])
    assert set(sheet.scores) == {"trustworthiness", "continuity", "procrustes", "affine_r2", "residual_variance"}
    assert set(digits.scores) == {"trustworthiness", "continuity", "residual_variance", "neighborhood_hit"}
    assert (sheet.n, digits.n, refused.n) == (60, 60, 60)
    assert "n_neighbors" in refused.refused
    table = tables.overview([sheet, digits, refused])
    shown = [f"{sheet.scores[name]:.3f}" for name in ("trustworthiness", "procrustes")]
    assert f"{', '.join(shown)}, n = 60 |" in table
    assert "refused (1)" in table
    assert f"1. {refused.refused}" in table
    rows.keep([sheet, digits, refused], tmp_path / "rows.jsonl")
    assert rows.read_rows(tmp_path / "rows.jsonl") == [sheet, digits, refused]
