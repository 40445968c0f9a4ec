"""Tables of docs/reference/methods.md."""

from pathlib import Path

from docs.figures.methods import tables
from glle_engine.methods import METHODS
from glle_engine.metrics.registry import SCORES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")


def test_the_lists_are_those_of_the_registries() -> None:
    """docs/reference/methods.md holds the lists that are generated from the registries."""
    assert tables.between(PAGE, "methods") == tables.listing()
    assert tables.between(PAGE, "scores") == tables.score_listing()
    assert [name for name in METHODS if f"\n| `{name}` | " not in tables.listing()] == []
    assert len(tables.score_listing().splitlines()) == 2 + len(SCORES)
