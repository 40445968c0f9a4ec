"""Problems: finite JSON of bounded size, whatever they quote."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glle_engine.base.errors import OutOfRangeError
from worker.base.problems import CUT, MOST_TEXT, Problem, ProblemError, problem_of, quotable, refuse, shortened

MOST_ANSWER = 2**18  # characters of JSON, in which one character of a text may take twelve

FACTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50),
    lambda facts: st.lists(facts, max_size=8) | st.dictionaries(st.text(max_size=8), facts, max_size=8),
    max_leaves=40,
)


def problem(**details: Any) -> Problem:
    """Return a problem with these details."""
    return refuse("some-code", 422, "It is wrong.", "Do another thing.", **details).problem


@given(st.dictionaries(st.text(max_size=8), FACTS, max_size=8))
def test_details_are_json_that_comes_back(details: dict[str, Any]) -> None:
    """Whatever the facts, the record of the problem is finite JSON, and is read back as it was."""
    made = Problem(code="a", status=422, detail="b", remedy="c", details=details)
    record = json.dumps(made.to_dict(), allow_nan=False)
    assert Problem.from_dict(json.loads(record)) == made
    assert replace(made, status=413).details == made.details  # quoted once


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (np.float64(math.inf), "inf"),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (2**64 - 1, 2**64 - 1),
        pytest.param(10**5000, "an integer of 16,610 bits", id="large integer"),
        (np.array([[1.0, math.nan]]), [[1.0, "nan"]]),
        ((1, 2), [1, 2]),
        ({1: math.inf}, {"1": "inf"}),
        (ValueError("no fact"), "no fact"),
    ],
)
def test_facts_that_json_has_not(value: Any, quoted: Any) -> None:
    """A number that is not finite is its name; arrays are lists, anything else its text; nothing is cut."""
    assert problem(fact=value).details == {"fact": quoted}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 10**7, id="text"),
        pytest.param(["y" * 10**4] * 10**4, id="texts"),
        pytest.param({f"k{i}": [i] * 10**3 for i in range(10**4)}, id="object"),
        pytest.param(np.zeros((1000, 1000)), id="array"),
        pytest.param([[[[[[[[[[1] * 50] * 50] * 50] * 50]]]]]], id="nested"),
        pytest.param("\N{GRINNING FACE}" * 10**6, id="wide text"),
    ],
)
def test_what_is_long_is_cut_and_said_to_be(value: Any) -> None:
    """The answer is bounded, whatever it quotes, and says so."""
    made = problem(fact=value)
    assert made.details[CUT] is True
    assert len(json.dumps(made.to_dict())) < MOST_ANSWER


def test_long_sentences_are_cut() -> None:
    """Detail and remedy are bounded, and say how much is left out."""
    made = refuse("some-code", 422, "d" * 10**6, "r" * 10**6).problem
    for text in (made.detail, made.remedy):
        assert len(text) < MOST_TEXT + 50
        assert text.endswith("(998,000 more characters)")
    assert shortened("short") == "short"
    assert quotable({"a": 1}) == {"a": 1}


def test_problem_of_an_error() -> None:
    """Each kind of error has its problem; a number that is not finite is no obstacle."""
    engine = OutOfRangeError("Too large.", remedy="Rescale.", details={"largest": math.inf})
    assert problem_of(engine).details == {"largest": "inf"}
    refusal = refuse("some-code", 409, "No.", "Yes.")
    assert problem_of(refusal) is refusal.problem
    assert problem_of(MemoryError("8 GiB")).code == "out-of-memory"
    assert problem_of(ZeroDivisionError()).is_internal
    assert not problem_of(ProblemError(problem())).is_internal
