"""Options and calls inside messages, which each interface (HTTP, Python, command) writes in its own words."""

from __future__ import annotations

import argparse
import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import glle_engine
from glle.cli.connection import in_command, report
from glle.transport.calls import Reply
from glle.transport.errors import reply_error
from glle_engine.base import errors
from glle_engine.base.spec import FitSpec
from glle_engine.base.texts import CALLS, UPLOAD_OPTIONS, Text, Way, in_python
from glle_engine.methods.registry import METHODS
from service.schemas.analyses import ComparisonIn
from service.schemas.resources import DrawsIn
from worker.base.problems import MAX_TEXT_CHARACTERS, Problem, as_request

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(glle_engine.__file__).parents[1]
PAGE = ROOT / "service" / "explorer" / "js" / "lib" / "remedies.js"
OF_PYTHON = (  # texts about objects of Python, which no other interface takes
    *("glle/", "glle_engine/estimator.py", "glle_engine/base/arrays.py", "glle_engine/base/pictures/"),
    *("glle_engine/tables/frames.py", "glle_engine/tables/anndata.py", "glle_engine/tables/given.py"),
    *("glle_engine/audit/candidates.py", "glle_engine/audit/sources.py", "glle_engine/linalg/threads.py"),
    *("glle_engine/posterior/posterior.py", "glle_engine/posterior/sampler.py", "glle_engine/base/parameters.py"),
    *("glle_engine/posterior/fit.py", "glle_engine/manifolds.py"),
)
OF_REQUESTS = (  # texts about requests that only someone who writes requests by hand can send, and about their keys
    *("service/middleware/", "service/server/", "service/schemas/problems.py", "service/submission/pagination.py"),
    "service/routes/system.py",
)
REQUEST = re.compile(r"/v\d|/docs\b|\b(GET|POST|PUT|PATCH|DELETE)\b|\?\w*=|Retry-After|multipart/")
OPTION = re.compile(r"\b[a-z]\w*=(?!\w*:)|--[a-z]|\b[a-z]+_[a-z_]+\b")
PROGRAM = re.compile(r"\w\(\)|\w\.\w+\(|\b(numpy|pandas|pyarrow|scipy|sklearn|curl)\b|application/|Content-\w+")
NAMES = {*UPLOAD_OPTIONS, "force", "feature", *CALLS}


@pytest.mark.parametrize(
    ("way", "request_", "python", "command"),
    [
        (
            Way("ignore", ["a", "the b."]),
            "?ignore=a&ignore=the%20b%2E",
            "ignore=['a', 'the b.']",
            "--ignore a 'the b.'",
        ),
        (Way("one_hot", ["R.x"]), "?one_hot=R.x", "one_hot=['R.x']", "--one-hot R.x"),
        (Way("labels", "ä"), "?labels=%C3%A4", "labels='ä'", "--labels 'ä'"),
        (Way("missing", "drop"), "?missing=drop", "missing='drop'", "--missing drop"),
        (Way("id"), "?id=", "id", "--id"),
        (Way("force", value=True), "?force=true", "force=True", "--force"),
        (Way("metric", "cosine"), '"metric": "cosine"', "metric='cosine'", "--metric cosine"),
        (Way("n_neighbors", 9), '"n_neighbors": 9', "n_neighbors=9", "--n-neighbors 9"),
        (Way("feature", 3), "feature 3 (counted from 0)", "X[:, 3]", "feature 3 (counted from 0)"),
        (Way("upload"), "POST /v1/datasets", "`client.dataset`", "`glle datasets upload`"),
        (Way("fit"), "POST /v1/posteriors", "`client.fit`", "`glle fit`"),
        (
            Way("cancel-job", "job_1"),
            "DELETE /v1/jobs/job_1",
            "`client.job('job_1').cancel()`",
            "`glle jobs cancel job_1`",
        ),
        (Way("delete-posterior"), "DELETE /v1/posteriors/{id}", "`client.posterior(id).delete()`", "over HTTP"),
        (
            Way("delete-embedding", "emb_1"),
            "DELETE /v1/embeddings/emb_1",
            "`client.delete_embedding('emb_1')`",
            "over HTTP",
        ),
        (Way("delete-results", "job_1"), "DELETE /v1/jobs/job_1?record=true", "over HTTP", "over HTTP"),
    ],
)
def test_each_interface_has_its_words(way: Way, request_: str, python: str, command: str) -> None:
    """Options with one value, with columns and without a value, settings and calls have a form for each interface."""
    assert (as_request(way), in_python(way), in_command(way)) == (request_, python, command)
    if way.name == "n_neighbors":  # of a command without this flag
        assert in_command(way, flags=("--metric",)) == "n_neighbors=9"


def test_a_result_in_json_has_the_words_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, notes name options as flags of the command, as the printed lines do."""
    note = {"message": Text("Give ", Way("header", "absent"), ".")}
    report(argparse.Namespace(json=True, flags=("--header",)), {"notes": [note], "n": 3})
    assert json.loads(capsys.readouterr().out) == {"notes": [{"message": "Give --header absent."}], "n": 3}


def test_every_name_has_a_text_on_the_page() -> None:
    """The explorer's table has a text for each option of the data and each call, and no others."""
    (table,) = re.findall(r"^const WAYS = \{\n(.*?)^\};", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert {name.strip("'") for name in re.findall(r"^  ('?[\w-]+'?): ", table, re.MULTILINE)} == NAMES


def test_no_text_of_an_error_is_put_into_a_string() -> None:
    """No message goes through an f-string, which would keep Python's words for other interfaces; `+` does not."""
    for folder in ("glle_engine", "service/routes", "service/submission", "worker/analyses"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Attribute):
                    assert node.value.attr not in {"message", "remedy"}, (path, node.lineno)


def test_every_name_in_a_text_is_known() -> None:
    """Each `Way("name")` in the sources is in the tables of the interfaces, or a parameter of a method."""
    parameters = {name for method in METHODS.values() for name in method.spec.__dataclass_fields__}
    parameters |= set(FitSpec.__dataclass_fields__)
    parameters |= {"method", "blocks", *DrawsIn.model_fields, *ComparisonIn.model_fields}
    for folder in ("glle_engine", "glle", "service", "worker"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_way = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Way"
                if is_way and isinstance(name := node.args[0], ast.Constant):  # type: ignore[attr-defined] # a call
                    assert name.value in NAMES | parameters, (path, name.value)


def test_a_problem_keeps_the_options_of_its_remedy() -> None:
    """An engine's error over HTTP becomes the client's exception, which names the options as arguments."""
    detail, remedy = Text(Way("n_neighbors", 9), " is too many."), Text("Use ", Way("ignore", ["a b"]), ".")
    problem = Problem(code="a-code", status=422, detail=detail, remedy=remedy)
    sent = problem.to_dict()
    assert (sent["detail"], sent["remedy"]) == ('"n_neighbors": 9 is too many.', "Use ?ignore=a%20b.")
    assert sent["remedy_parts"] == ["Use ", {"name": "ignore", "value": ["a b"]}, "."]
    assert Problem.from_dict(sent) == problem
    error = reply_error(Reply(422, {}, json.dumps(sent).encode()))
    assert str(error) == "n_neighbors=9 is too many. Use ignore=['a b']."


def test_a_long_list_of_columns_is_cut_between_names() -> None:
    """A remedy that is too long loses whole names at its end, and says how much was cut."""
    names = [f"column {i}" for i in range(1000)]
    remedy = Problem(code="x", status=422, detail="", remedy=Text("Use ", Way("ignore", names), ".")).remedy
    assert isinstance(remedy, Text)
    (way,) = (part for part in remedy.parts if isinstance(part, Way))
    assert way.value == names[: len(way.value)]
    assert MAX_TEXT_CHARACTERS * 0.95 < len(remedy) < MAX_TEXT_CHARACTERS + 50
    assert remedy.endswith(" more characters)")


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the operands of an expression that become part of the message."""
    match node:
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.Call(func=ast.Name(id="Text" | "joined")) | ast.Tuple() | ast.List():
            yield from node.args if isinstance(node, ast.Call) else node.elts
        case ast.JoinedStr() | ast.BoolOp():
            yield from node.values
        case ast.FormattedValue(value=ast.JoinedStr() | ast.IfExp() | ast.Name()) | ast.Starred():
            yield node.value
        case ast.BinOp():
            yield from (node.left, node.right)


def _literals(node: ast.AST, assigned: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Yield the literal pieces of a message, following local names to what was assigned to them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.Name):
        for value in assigned.pop(node.id, ()):
            yield from _literals(value, assigned)
    for child in _children(node):
        yield from _literals(child, assigned)


def _assigned(function: ast.AST) -> dict[str, list[ast.expr]]:
    """Return, for each name that a function assigns, the assigned expressions."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            (target,) = node.targets[:1]
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    values.setdefault(name.id, []).append(value)
    return values


def _texts() -> Iterator[tuple[str, str, str]]:
    """Yield source file, code and each literal piece of every problem and note in the sources."""
    codes = {name: kind.code for name, kind in vars(errors).items() if hasattr(kind, "code")}
    for folder in ("glle_engine", "glle", "service", "worker"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            constants = {name: value for name, value in _assigned(tree).items() if name.isupper()}
            for function in functions:
                for call in ast.walk(function):
                    name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
                    if name not in {"Note", "refuse", "Problem", *codes}:
                        continue
                    assert isinstance(call, ast.Call)
                    values = {**constants, **_assigned(function)}
                    named = {keyword.arg: keyword.value for keyword in call.keywords}
                    args = [*call.args, *(named[each] for each in ("detail", "remedy", "message") if each in named)]
                    kinds: list[str] = [codes.get(name, "")]
                    if name in {"Note", "refuse", "TableError", "Problem"}:
                        first = named.get("code") or args.pop(0)
                        kinds = [each for each in _literals(first, dict(values)) if each] or [ast.unparse(first)]
                    pieces = [piece for arg in args for piece in _literals(arg, dict(values))]
                    yield from (
                        (str(path.relative_to(ROOT)), kind, piece) for kind in kinds for piece in pieces or [""]
                    )


def test_no_text_has_words_of_another_interface() -> None:
    """No message has an option or call of one interface as literal words; these are `Way` values.

    The page has its own remedies, by the code, for problems whose remedy is for programs.
    """
    page = PAGE.read_text(encoding="utf-8")
    (table,) = re.findall(r"^const REMEDIES = \{\n(.*?)^\};", page, re.DOTALL | re.MULTILINE)
    of_page = set(re.findall(r"^  '?([\w-]+)'?:", table, re.MULTILINE))
    texts = list(_texts())
    codes = {code for _, code, _ in texts}
    assert len(codes) > 150
    assert of_page <= codes, "each remedy of the page belongs to a problem"
    for path, code, literal in texts:
        text = re.sub(r"`glle [^`]*`", "", literal)  # a command of the shell, for whoever runs the service
        if not path.startswith(OF_REQUESTS):
            assert not REQUEST.search(text), (path, code, text)
            if not path.startswith(OF_PYTHON):
                assert not OPTION.search(text), (path, code, text)
                assert code in of_page or not PROGRAM.search(text), (path, code, text)
