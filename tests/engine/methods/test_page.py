"""docs/methods.md has a row for whatever method and score there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.figures.methods import tables
from glle_engine.methods import METHODS
from glle_engine.scores import SCORES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")


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
    assert all(" s" in cell or cell.startswith("refused (") for cell in cells)
