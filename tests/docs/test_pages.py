"""What the pages name exists: files, tests, routes, functions, equations, methods and commands."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

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
FOLDERS = ("tutorials", "how-to", "reference", "explanation")


def test_named_tests_exist() -> None:
    """Test functions that the pages name exist in the named files, and some are named."""
    assert len(NAMED) > 60
    assert [(file, name) for file, name in NAMED if name not in names_in(file)] == []


def test_links_lead_to_files() -> None:
    """A link within the repository leads to an existing file."""
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))]
    assert [(page, to) for page, to in links if "://" not in to and not (page.parent / to).exists()] == []


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


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_navigation_has_every_page(folder: str) -> None:
    """The site's navigation lists each page of a folder."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs" / folder).iterdir()}
    listed = set(re.findall(rf"{folder}/[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert pages == listed


ROOMS = (
    "service", "worker", "glle_engine", "glle", "clients", "tests", "qa", "bench", "demo", "deploy", "docs", "openapi",
)  # fmt: skip
_PATH = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`")
MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
# A file followed by names in parentheses: functions, classes, constants, and members as `Class.member`.
MEMBERS = re.findall(r"`([\w./]+\.py)` \((`[^)]+`)\)", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", MAPS)
def test_paths_of_the_maps_exist(page: str) -> None:
    """Every path in backticks on the page exists."""
    paths = _PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_functions_of_the_architecture_exist() -> None:
    """Each file defines the names in the parentheses after its path in ARCHITECTURE.md."""
    assert MEMBERS
    for path, names in MEMBERS:
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in ".".join(re.findall(r"`([\w.]+)`", names)).split("."):
            pattern = rf"^\s*(?:(?:async )?def |class )?{name}\b\s*[(:=\[]"
            assert re.search(pattern, source, re.MULTILINE), f"{path}: {name}"


def test_the_example_of_a_new_method_embeds() -> None:
    """The example of a new method in ARCHITECTURE.md embeds points as it stands."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "glle_engine.methods.linear.random_projection"}
    exec(code, names)  # noqa: S102 # our own page
    method = names["random_projection"]
    embedding = method.embed([[0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 1, 1]], method.spec(seed=1))
    assert (method.name, method.family, embedding.Y.shape) == ("random-projection", "linear and kernel", (4, 2))
    assert "projecting" in embedding.seconds


def test_every_package_is_named_in_its_room() -> None:
    """ARCHITECTURE.md's table of rooms lists each package of each room."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for room in ("service", "worker", "glle_engine", "glle"):
        (row,) = re.findall(rf"^\| `{room}/` \| .*$", page, re.MULTILINE)
        packages = {init.parent.name for init in (ROOT / room).glob("*/__init__.py")}
        assert packages <= set(re.findall(r"`([\w.]+)`", row)), room


FIRST, LAST = 7, 43  # LLE's constraint, and the last equation of the paper
PAGE = (ROOT / "docs" / "reference" / "equations.md").read_text(encoding="utf-8")
EQUATIONS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.partition("<!-- seeds -->")[0].splitlines()  # the generated table has no functions
    if line.startswith("| ") and not line.startswith(("| paper", "| method"))
]


@cache
def names_in(path: str) -> set[str]:
    """Return the functions and classes that a file defines, methods as Class.method."""
    names = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
    return names


def test_file_function_and_test_exist() -> None:
    """In each row of the page the file defines the function, and the test file the test."""
    for row in EQUATIONS:
        (path, function), (test_path, test) = (cell.strip("`").split("::") for cell in row[2:])
        assert function in names_in(path), row
        assert re.match("tests/.* test_", f"{test_path} {test}"), row
        assert test in names_in(test_path), row


def test_every_equation_of_the_paper_has_a_row() -> None:
    """The rows are all equations of the paper from LLE's constraint on."""
    numbers: set[int] = set()
    for row in EQUATIONS:
        if match := re.match(r"Eq\. (\d+)(?:-(\d+))?", row[0]):
            numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    assert numbers == set(range(FIRST, LAST + 1))
    assert {row[0] for row in EQUATIONS if row[0].startswith("Algorithm")} == {"Algorithm 1", "Algorithm 2"}


def test_every_method_has_a_row_with_its_source() -> None:
    """The rows have the order and the sources of the registry of methods."""
    rows = [(row[0].strip("`"), row[1]) for row in EQUATIONS if row[0].startswith("`")]
    assert rows == [(name, method.source) for name, method in METHODS.items()]


# Not those of the changelog, which names groups of commands.
_COMMAND = re.compile(r"(?:^(?: {4}|\$ )?|`|-- |api |[(|] ?|[A-Z]=\S+ )glle ([-a-z][^`\n]*)", re.MULTILINE)


def commands_in_pages() -> Iterator[tuple[str, str]]:
    """Yield the page and the words after `glle` for every command in the pages' code."""
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


def test_the_program_accepts_every_command() -> None:
    """The parser accepts the words, options and values of each command, without a run of the command."""
    assert len(COMMANDS) > 50
    parser = cli.command_parser([add_commands])[0]  # of the client and the server
    for page, words in COMMANDS:
        arguments = shlex.split(f"{words} --help" if re.fullmatch("[a-z]+", words) else words)
        if arguments[-1] not in {"--help", "--version"}:
            assert parser.parse_args(arguments).run, page
            continue
        with pytest.raises(SystemExit) as end:
            parser.parse_args(arguments)
        assert end.value.code == 0, f"{page}: {words}"
