"""Problems: finite JSON of bounded size."""

from __future__ import annotations

import errno
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.base import memory
from worker.base.problems import CUT_MEMBER, MAX_TEXT_CHARACTERS, Problem, problem_of, quotable, refuse, shorten

MAX_ANSWER = 2**18  # characters of JSON; one character of a text takes up to twelve

TEXTS = st.text('a"\\\0\n\x7f\u2028\N{LATIN SMALL LETTER U WITH DIAERESIS}\N{GRINNING FACE}', max_size=8)
FACTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda facts: st.lists(facts, max_size=4) | st.dictionaries(TEXTS, facts, max_size=4),
    max_leaves=12,
)


def problem(**details: Any) -> Problem:
    """Return a problem with these details."""
    return refuse("some-code", 422, "It is wrong.", "Do another thing.", **details).problem


@settings(max_examples=30)
@given(st.dictionaries(TEXTS, FACTS, max_size=4))
def test_details_survive_json(details: dict[str, Any]) -> None:
    """The record of a problem is finite JSON and is read back unchanged, for any details."""
    original = Problem(code="a", status=422, detail="b", remedy="c", details=details)
    record = json.dumps(original.to_dict(), allow_nan=False)
    assert Problem.from_dict(json.loads(record)) == original
    assert replace(original, status=413).details == original.details  # the details are encoded only once


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
def test_details_that_json_lacks(value: Any, quoted: Any) -> None:
    """A non-finite number becomes its name, an array a list, any other object its text."""
    assert problem(fact=value).details == {"fact": quoted}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 10**6, id="text"),
        pytest.param(["y" * 10**4] * 10**3, id="texts"),
        pytest.param({f"k{i}": [i] * 10**3 for i in range(10**3)}, id="object"),
        pytest.param(np.zeros((1000, 1000)), id="array"),
        pytest.param([[[[[[[[[[1] * 50] * 50] * 50] * 50]]]]]], id="nested"),
        pytest.param("\N{GRINNING FACE}" * 10**5, id="wide text"),
    ],
)
def test_long_details_are_cut_and_marked(value: Any) -> None:
    """The response has a bounded size and reports the cut."""
    cut_problem = problem(fact=value)
    assert cut_problem.details[CUT_MEMBER] is True
    assert len(json.dumps(cut_problem.to_dict())) < MAX_ANSWER


def test_long_sentences_are_cut() -> None:
    """Detail and remedy are bounded, and report the number of omitted characters."""
    cut_problem = refuse("some-code", 422, "d" * 10**6, "r" * 10**6).problem
    for text in (cut_problem.detail, cut_problem.remedy):
        assert len(text) < MAX_TEXT_CHARACTERS + 50
        assert text.endswith("(998,000 more characters)")
    assert shorten("short") == "short"
    assert quotable({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("900 GB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("_isfinite.so: failed to map segment from shared object"),
    ],
)
def test_failed_allocations_name_the_limit(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Each error of a failed allocation, also as the cause of another error, becomes a problem that names the limit."""
    monkeypatch.setattr(memory._WorkLimit, "bytes", 1000)
    caused = ValueError("no embedding")
    caused.__cause__ = error
    for each in (error, caused):
        memory_problem = problem_of(each)
        assert (memory_problem.code, memory_problem.details) == ("too-much-memory", {"allowed_bytes": 1000})
    assert problem_of(ValueError("no embedding")).code == "internal-error"
