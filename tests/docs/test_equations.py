"""docs/reference/equations.md names an existing file, function and test for every equation and method."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from glle_engine.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
FIRST, LAST = 7, 43  # LLE's constraint, and the last equation of the paper
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "reference" / "equations.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| paper", "| method"))
]


@cache
def defined(path: str) -> set[str]:
    """Return the functions and classes of a file, methods as Class.method."""
    names = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]} {row[-1]}" for row in ROWS])
def test_file_function_and_test_exist(row: list[str]) -> None:
    """The file defines the function, and the test file the test."""
    assert len(row) == 6
    path, function, test_path, test = (cell.strip("`") for cell in row[2:])
    assert function in defined(path)
    assert test_path.startswith("tests/")
    assert test.startswith("test_")
    assert test in defined(test_path)


def test_every_equation_of_the_paper_has_a_row() -> None:
    """The rows are all equations of the paper from LLE's constraint on."""
    numbers: set[int] = set()
    for row in ROWS:
        if match := re.match(r"Eq\. (\d+)(?:-(\d+))?", row[0]):
            numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    assert numbers == set(range(FIRST, LAST + 1))
    assert {row[0] for row in ROWS if row[0].startswith("Algorithm")} == {"Algorithm 1", "Algorithm 2"}


def test_every_method_has_a_row_with_its_source() -> None:
    """The rows have the order of the registry, and its sources."""
    rows = [(row[0].strip("`"), row[1]) for row in ROWS if row[0].startswith("`")]
    assert rows == [(name, method.source) for name, method in METHODS.items()]
