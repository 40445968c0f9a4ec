"""ARCHITECTURE.md and CONTRIBUTING.md name paths and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "service", "worker", "glle_engine", "glle", "clients", "tests", "qa", "bench", "demo", "deploy", "docs", "openapi",
)  # fmt: skip
PATH = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`")
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
NAMED = {page: PATH.findall((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}
# A file followed by names in parentheses: functions, classes, constants, and members as `Class.member`.
MEMBERS = re.findall(r"`([\w./]+\.py)` \((`[^)]+`)\)", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
QUESTIONS = re.findall(r"^\| (.+\?) \| (.+) \|$", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("page", "path"), [(page, path) for page, paths in NAMED.items() for path in sorted({*paths})])
def test_named_paths_exist(page: str, path: str) -> None:
    """Every path in backticks exists."""
    assert (ROOT / path).exists(), f"{page} names {path}"


@pytest.mark.parametrize(("path", "names"), MEMBERS)
def test_named_functions_exist(path: str, names: str) -> None:
    """The file defines every name in the parentheses after it."""
    source = (ROOT / path).read_text(encoding="utf-8")
    for name in re.findall(r"`([\w.]+)`", names):
        for part in name.split("."):
            assert re.search(rf"^\s*(?:(?:async )?def |class )?{part}\b\s*[(:=\[]", source, re.MULTILINE), (
                f"{path}: {name}"
            )


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_each_answer_is_a_file(question: str, answer: str) -> None:
    """Every answer names at least one file that exists."""
    paths = PATH.findall(answer)
    assert paths, question
    for path in paths:
        assert (ROOT / path).is_file(), path


def test_newcomers_have_twelve_questions_answered() -> None:
    """The patterns still match the pages."""
    assert len(QUESTIONS) >= 12
    assert all(NAMED.values())
    assert MEMBERS


def test_every_package_is_named_in_its_room() -> None:
    """The table of rooms lists each package of each room."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for room in ("service", "worker", "glle_engine", "glle"):
        (row,) = re.findall(rf"^\| `{room}/` \| .*$", page, re.MULTILINE)
        packages = {init.parent.name for init in (ROOT / room).glob("*/__init__.py")}
        assert packages <= set(re.findall(r"`([\w.]+)`", row)), room


def test_test_modules_import_no_test_modules() -> None:
    """Shared helpers live in a conftest.py or in a module that is not named test_*."""
    pattern = re.compile(r"^\s*(?:from|import) (?:tests|qa)[\w.]*(?:\.| import .*\b)test_\w+", re.MULTILINE)
    files = [file for room in ("tests", "qa") for file in (ROOT / room).rglob("*.py")]
    assert {str(file): found for file in files if (found := pattern.findall(file.read_text(encoding="utf-8")))} == {}
