"""Pages link to files, name tests that exist, and cover every route."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import PAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

TABLES = "".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8")
    for page in ("reference/guarantees.md", "explanation/threat-model.md")
)
NAMED = re.findall(r"`((?:tests|qa)/\S+?\.py)::(\w+)`", TABLES)
PARTS = ("tutorials", "how-to", "reference", "explanation")


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_named_tests_exist(file: str, name: str) -> None:
    """The named test function is defined in the named file."""
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_guarantees_name_tests() -> None:
    """The pattern still matches the tables."""
    assert len(NAMED) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    """A link within the repository leads to an existing file."""
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_route_is_in_the_reference() -> None:
    """The HTTP reference has each method and path of the contract."""
    contract = json.loads((ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
    named = {
        (method.strip("` "), path)
        for methods, path in re.findall(r"((?:`?[A-Z]+`?,? )+)(/[\w./{}]*)`", page)
        for method in methods.replace(",", " ").split()
    }
    for path, operations in contract["paths"].items():
        assert {(method.upper(), path) for method in operations} <= named, path


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_at_most_twelve_pages_in_the_navigation(part: str) -> None:
    """The site lists every page, and no folder is too long to read."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs" / part).iterdir()}
    listed = set(re.findall(rf"{part}/[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert pages == listed
    assert len(pages) <= 12


def test_readme_stays_short() -> None:
    """At most 150 lines of at most 160 characters, without the comments on shell blocks."""
    lines = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line[:4] != "<!--"]
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 160
