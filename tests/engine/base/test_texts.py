"""Texts that name options as values."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import glle_engine
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Note, Text, Way, in_python, joined, parts_of, to_json, written

TEXT = Text("Leave it out with ", Way("ignore", ["a", "b c"]), ", or use ", Way("missing", "median"), ".")
_OF_HTTP = re.compile(r"\?[a-z_]+=|/v1/|\b(GET|POST|PUT|DELETE) /")


def test_a_text_is_a_str_that_names_options_as_keyword_arguments() -> None:
    """Calls and options without a value, too."""
    assert TEXT == "Leave it out with ignore=['a', 'b c'], or use missing='median'."
    assert [in_python(Way(*way)) for way in (("force", True), ("id",), ("upload",))] == [
        "force=True",
        "id",
        "`client.dataset`",
    ]


def test_texts_keep_their_options() -> None:
    """In sums, in other texts, as JSON, in pickles and in copies; neighboring strings are one part."""
    both = "First. " + TEXT + " Last."
    assert parts_of(both) == ("First. Leave it out with ", *TEXT.parts[1:-1], ". Last.")
    assert parts_of(Text(TEXT, " Last.")) == (*TEXT.parts[:-1], ". Last.")
    assert parts_of(joined(["First.", TEXT])) == ("First. Leave it out with ", *TEXT.parts[1:])
    assert joined([]) == ""
    again = pickle.loads(pickle.dumps(TEXT))  # noqa: S301 # written here
    copies = (Text.from_json(json.loads(json.dumps(to_json(TEXT)))), again, copy.copy(TEXT))
    assert all((text, text.parts) == (TEXT, TEXT.parts) for text in copies)
    assert to_json("plain") == ["plain"]


def test_an_f_string_keeps_its_options() -> None:
    """Errors and notes make a text of it; a text of the user may have the characters of the marks."""
    said = f"Leave it out with {Way('ignore', ['a', 'b c'])}, or use {Way('missing', 'median')}."
    assert Text(said).parts == TEXT.parts
    assert Text("So: ", said).parts == ("So: Leave it out with ", *TEXT.parts[1:])
    error = InvalidParameterError(said, remedy=f"Raise {Way('n_neighbors')}.")
    assert (str(error), Note("a-code", said).message) == (f"{TEXT} Raise n_neighbors.", TEXT)
    mark = f"{Way('id')}"
    for text in (mark[0], mark[-1], mark[1:], mark[0] + mark, mark.replace("id", '"'), f"{mark[0]}3{mark[-1]}"):
        assert Text(f"The column {text}", " ", Way("missing")).endswith(" missing")


def test_an_interface_writes_the_options_alone() -> None:
    """Text that looks like an option is text, and so are braces."""
    text = Text("{0} ?ignore=x ignore='x' ", Way("ignore", ["{x}"]), "%s")
    assert written(text, lambda way: f"<{way.name}>") == "{0} ?ignore=x ignore='x' <ignore>%s"


def test_the_engine_knows_no_http() -> None:
    """No text of the engine has a query, an address or a request."""
    for path in Path(glle_engine.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not _OF_HTTP.search(node.value), (path, node.value)


def test_values_are_json() -> None:
    """Numbers of numpy become those of Python, 2.0 becomes 2, and a number that JSON lacks becomes its text."""
    text = Text(
        Way("radius", np.float64(0.5)),
        " ",
        Way("n_neighbors", np.int64(3)),
        " ",
        Way("reg", np.inf),
        " ",
        Way("spread", 2.0),
    )
    assert text == "radius=0.5 n_neighbors=3 reg='inf' spread=2"
    assert Text.from_json(json.loads(json.dumps(to_json(text), allow_nan=False))).parts == text.parts


def test_a_note_has_the_names_of_features() -> None:
    """Only features become names; options stay, and so does text that looks like a feature."""
    note = Note("a-code", Text(Way("feature", 1), " and X[:, 0]: use ", Way("standardize", "zscore"), "."))
    named = note.with_names(["a", "b"])
    assert named.message == "b and X[:, 0]: use standardize='zscore'."
    assert Note.from_dict(json.loads(json.dumps(named.to_dict()))) == named
    assert note.message == "X[:, 1] and X[:, 0]: use standardize='zscore'."
    assert note.with_names(None) is note


@pytest.mark.parametrize("name", ["\ue000[[1]]\ue001", "\ue000[5]\ue001", "\ue000x", "\ue000{}\ue001"])
def test_a_name_with_private_characters_stays_a_text(name: str) -> None:
    """A label of a user that has the characters of a mark is no option."""
    text = Text(f"label {name} stays apart")
    assert (text, text.parts) == (f"label {name} stays apart", (f"label {name} stays apart",))
    assert joined([text, "."], "") == f"label {name} stays apart."
