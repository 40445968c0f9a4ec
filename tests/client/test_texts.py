"""Options and calls in texts, in the words of each interface."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import glle_engine
from glle.cli.connection import in_command
from glle.transport.calls import Reply
from glle.transport.errors import reply_error
from glle_engine.base.spec import FitSpec
from glle_engine.base.texts import CALLS, UPLOAD_OPTIONS, Text, Way, in_python
from glle_engine.methods.registry import METHODS
from worker.base.problems import MAX_TEXT, Problem, as_request

ROOT = Path(glle_engine.__file__).parents[1]
PAGE = ROOT / "service" / "explorer" / "js" / "lib" / "remedies.js"
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
        (Way("feature", 3), "feature 3 (from 0)", "X[:, 3]", "feature 3 (from 0)"),
        (Way("upload"), "POST /v1/datasets", "`client.dataset`", "`glle datasets upload`"),
        (Way("fit"), "POST /v1/posteriors", "`client.fit`", "`glle fit`"),
        (Way("delete-results", "job_1"), "DELETE /v1/jobs/job_1?record=true", "over HTTP", "over HTTP"),
    ],
)
def test_each_interface_has_its_words(way: Way, request_: str, python: str, command: str) -> None:
    """Of an option with one value, with columns, without a value, of a setting, and of a call."""
    assert (as_request(way), in_python(way), in_command(way)) == (request_, python, command)


def test_every_name_has_a_text_on_the_page() -> None:
    """The table of the page has each option of data and each call, and nothing else."""
    (table,) = re.findall(r"^const WAYS = \{\n(.*?)^\};", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert {name.strip("'") for name in re.findall(r"^  ('?[\w-]+'?): ", table, re.MULTILINE)} == NAMES


def test_every_name_in_a_text_is_known() -> None:
    """It is in the tables of the interfaces, or a parameter of a method, which each interface writes by one rule."""
    parameters = {name for method in METHODS.values() for name in method.spec.__dataclass_fields__}
    parameters |= set(FitSpec.__dataclass_fields__)
    for folder in ("glle_engine", "glle", "service", "worker"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_way = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Way"
                if is_way and isinstance(name := node.args[0], ast.Constant):  # type: ignore[attr-defined] # a call
                    assert name.value in NAMES | parameters, (path, name.value)


def test_a_problem_keeps_the_options_of_its_remedy() -> None:
    """From the engine over HTTP to an exception of the client, which names them as arguments."""
    detail, remedy = Text(Way("n_neighbors", 9), " is too many."), Text("Use ", Way("ignore", ["a b"]), ".")
    problem = Problem(code="a-code", status=422, detail=detail, remedy=remedy)
    sent = problem.to_dict()
    assert (sent["detail"], sent["remedy"]) == ('"n_neighbors": 9 is too many.', "Use ?ignore=a%20b.")
    assert sent["remedy_parts"] == ["Use ", {"name": "ignore", "value": ["a b"]}, "."]
    assert Problem.from_dict(sent) == problem
    error = reply_error(Reply(422, {}, json.dumps(sent).encode()))
    assert str(error) == "n_neighbors=9 is too many. Use ignore=['a b']."


def test_a_long_list_of_columns_is_cut_between_names() -> None:
    """Each name that stays is whole."""
    names = [f"column {i}" for i in range(1000)]
    remedy = Problem(code="x", status=422, detail="", remedy=Text("Use ", Way("ignore", names), ".")).remedy
    assert isinstance(remedy, Text)
    (way,) = (part for part in remedy.parts if isinstance(part, Way))
    assert way.value == names[: len(way.value)]
    assert MAX_TEXT * 0.95 < len(remedy) < MAX_TEXT + 50
    assert remedy.endswith(" more characters)")
