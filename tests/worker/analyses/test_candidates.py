"""Candidates of a comparison: which of them are audited wholly."""

from types import SimpleNamespace
from typing import Any

import pytest

from worker.analyses.candidates import CandidateMaps


def test_a_candidate_clearly_behind_is_not_audited_wholly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each candidate has the short audit; only those that are not clearly behind have the whole audit."""
    audits = list[tuple[str, bool]]()
    monkeypatch.setattr(CandidateMaps, "_behind", lambda _: {"pca"})
    monkeypatch.setattr(CandidateMaps, "_answer", lambda _: None)
    monkeypatch.setattr(
        CandidateMaps, "_audit_or_note_problem", lambda _, row, is_whole: audits.append((row["label"], is_whole))
    )
    spec: Any = SimpleNamespace(key=lambda _: "key")
    context: Any = SimpleNamespace(subject=None, publish_partial=lambda *_: None)
    maps = CandidateMaps(spec, context)
    for is_whole in (False, True):
        for label in ("pca", "umap"):
            maps.audit({"label": label}, is_whole=is_whole)
    assert audits == [("pca", False), ("umap", False), ("umap", True)]
