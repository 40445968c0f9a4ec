"""What the pages name exists: files, tests, routes, functions, equations, methods and commands."""

import argparse
import ast
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from glle import cli
from glle_engine.methods import METHODS
from service.cli.main import add_commands
from tests.docs.pages import PAGES, ROOT

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


ROOMS = (
    "service", "worker", "glle_engine", "glle", "clients", "tests", "qa", "bench", "demo", "deploy", "docs", "openapi",
)  # fmt: skip
_PATH = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`")
MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
PATHS = {page: _PATH.findall((ROOT / page).read_text(encoding="utf-8")) for page in MAPS}
# A file followed by names in parentheses: functions, classes, constants, and members as `Class.member`.
MEMBERS = re.findall(r"`([\w./]+\.py)` \((`[^)]+`)\)", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
QUESTIONS = re.findall(r"^\| (.+\?) \| (.+) \|$", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("page", "path"), [(page, path) for page, paths in PATHS.items() for path in sorted({*paths})])
def test_paths_of_the_architecture_exist(page: str, path: str) -> None:
    """Every path in backticks exists."""
    assert (ROOT / path).exists(), f"{page} names {path}"


@pytest.mark.parametrize(("path", "names"), MEMBERS)
def test_functions_of_the_architecture_exist(path: str, names: str) -> None:
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
    paths = _PATH.findall(answer)
    assert paths, question
    for path in paths:
        assert (ROOT / path).is_file(), path


def test_newcomers_have_twelve_questions_answered() -> None:
    """The patterns still match the pages."""
    assert len(QUESTIONS) >= 12
    assert all(PATHS.values())
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


FIRST, LAST = 7, 43  # LLE's constraint, and the last equation of the paper
EQUATIONS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "reference" / "equations.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| paper", "| method"))
]


@cache
def names_in(path: str) -> set[str]:
    """Return the functions and classes of a file, methods as Class.method."""
    names = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("row", EQUATIONS, ids=[f"{row[0]} {row[-1]}" for row in EQUATIONS])
def test_file_function_and_test_exist(row: list[str]) -> None:
    """The file defines the function, and the test file the test."""
    assert len(row) == 6
    path, function, test_path, test = (cell.strip("`") for cell in row[2:])
    assert function in names_in(path)
    assert test_path.startswith("tests/")
    assert test.startswith("test_")
    assert test in names_in(test_path)


def test_every_equation_of_the_paper_has_a_row() -> None:
    """The rows are all equations of the paper from LLE's constraint on."""
    numbers: set[int] = set()
    for row in EQUATIONS:
        if match := re.match(r"Eq\. (\d+)(?:-(\d+))?", row[0]):
            numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    assert numbers == set(range(FIRST, LAST + 1))
    assert {row[0] for row in EQUATIONS if row[0].startswith("Algorithm")} == {"Algorithm 1", "Algorithm 2"}


def test_every_method_has_a_row_with_its_source() -> None:
    """The rows have the order of the registry, and its sources."""
    rows = [(row[0].strip("`"), row[1]) for row in EQUATIONS if row[0].startswith("`")]
    assert rows == [(name, method.source) for name, method in METHODS.items()]


# Not those of the changelog, which names groups of commands.
_COMMAND = re.compile(r"(?:^(?: {4}|\$ )?|`|-- |api |[(|] ?|[A-Z]=\S+ )glle ([-a-z][^`\n]*)", re.MULTILINE)


def commands_in_pages() -> Iterator[tuple[str, str]]:
    """Yield the page and the words after `glle` of every command in code."""
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = re.findall(r"^```(?:sh|console|bash)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        blocks += re.findall(r"(?:^ {4,}\S.*\n)+", text, re.MULTILINE)
        blocks += re.findall(r"(`glle [^`]+`)", text)
        for block in blocks:
            for words in _COMMAND.findall(block):
                words_alone = re.split(r"\s#|\s[|&>;]|\)$", words)[0].strip()
                yield str(page.relative_to(ROOT)), words_alone.replace(" FILE", " file.npy")


COMMANDS = sorted(set(commands_in_pages()))


def test_commands_are_found() -> None:
    """The pattern still matches the pages."""
    assert len(COMMANDS) > 50


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Return the parser of the client's and the server's commands."""
    return cli.command_parser([add_commands])[0]


@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_the_program_accepts_the_command(page: str, words: str, parser: argparse.ArgumentParser) -> None:
    """The command's words, options and values are those of its parser; it is not run. A bare name is looked up."""
    if re.fullmatch("[a-z]+", words):
        words += " --help"
    if not re.search("--(help|version)$", words):
        assert parser.parse_args(shlex.split(words)).run
        return
    with pytest.raises(SystemExit) as end:
        parser.parse_args(shlex.split(words))
    assert end.value.code == 0
