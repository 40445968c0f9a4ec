"""The pages of docs/ name tests and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = "".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8")
    for page in ("reference/guarantees.md", "explanation/threat-model.md")
)
NAMED = re.findall(r"`(tests/\S+?\.py)::(\w+)`", TABLES)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_tests_that_the_table_names_exist(file: str, name: str) -> None:
    """A row without its test would be a promise without a proof."""
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_table_is_not_empty() -> None:
    """Nor is it read wrongly."""
    assert len(NAMED) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    """A link within the repository leads to a file that is there."""
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
