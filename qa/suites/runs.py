"""Run the test suite of a library on stand-ins by pytest, and make a table of the tests that pass, fail or skip."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from scipy.sparse import issparse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray


class Fits:
    """Base of the stand-ins, which records which fits a test uses and can replace embeddings by random numbers.

    `used` has the `key_of` each fit since the test began. If `random` is a generator, its numbers replace embeddings.
    """

    used: ClassVar[set[str]] = set()
    random: ClassVar[np.random.Generator | None] = None

    @staticmethod
    def placed(Y: NDArray[Any]) -> NDArray[Any]:
        """Return coordinates unchanged, or random numbers of the same shape and type if `Fits.random` is set."""
        random = Fits.random
        return Y if random is None else random.standard_normal(Y.shape).astype(Y.dtype)


def key_of(name: str, data: Any, parameters: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal fits: the method, a digest of the data, and the parameters."""
    values = np.ascontiguousarray(data.toarray() if issparse(data) else data)
    described = repr(sorted((each, str(value)) for each, value in parameters.items()))
    return f"{name} {hashlib.sha256(values.tobytes()).hexdigest()} {described}"


class Recorder:
    """Plugin of pytest that records which tests passed, failed and were skipped, and which fits each test used.

    `rows` are patterns of tests to skip, with reasons.
    """

    def __init__(self, skipped: Mapping[str, str]) -> None:
        self.rows = skipped
        self.passed: dict[str, bool] = {}
        self.fitted: dict[str, set[str]] = {}
        self.errors: dict[str, str] = {}
        self.skipped: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Skip the tests that match a pattern in `rows`."""
        for item in items:
            if any(fnmatchcase(short(item.nodeid), row) for row in self.rows):
                self.skipped.append(short(item.nodeid))
                item.add_marker(pytest.mark.skip)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Record the distinct fits of a test and of its fixtures."""
        Fits.used.clear()
        try:
            return (yield)
        finally:
            if Fits.used:
                self.fitted[short(item.nodeid)] = set(Fits.used)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record whether a test passed, and the error of a test that failed."""
        if report.failed or (report.when == "call" and report.passed):
            self.passed[short(report.nodeid)] = report.passed
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.errors[short(report.nodeid)] = str(crash.message if crash else report.longrepr)

    def fails_as(self, test: str, row: str) -> bool:
        """Return whether the pattern `row` matches a failing test, or its error if the pattern begins with `*: `."""
        return fnmatchcase(f"*: {self.errors[test]}" if row.startswith("*: ") else test, row)


def short(nodeid: str) -> str:
    """Return "FILE TEST PARAMETERS" for a pytest node id, without brackets, which have a meaning in patterns."""
    return nodeid.rsplit("/", 1)[-1].replace("::", " ").replace("[", " ").replace("]", "")


@dataclass(frozen=True)
class Suite:
    """The test suite of a library, and which of its tests may fail.

    Attributes
    ----------
    folder : Path
    files : dict of str to str
        Paths of test files below the folder, by a title for the table.
    failing, skipped : dict of str to str
        Reasons why tests fail or are skipped, by a pattern of tests ("FILE TEST PARAMETERS"), or of the errors of
        failing tests ("*: *text*").

    """

    folder: Path
    files: dict[str, str]
    failing: dict[str, str]
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, words: list[str], random: np.random.Generator | None = None) -> Recorder:
        """Run the suite with further arguments of pytest; if `random` is given, its numbers replace embeddings."""
        Fits.random, recorder = random, Recorder(self.skipped)
        files = [str(self.folder / file) for file in self.files.values()]
        options = ["-c", os.devnull, "--rootdir", str(self.folder), "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        options += ["--tb=no", "-rN"] if random else []
        pytest.main([*options, *words, *files], plugins=[recorder])
        return recorder

    def flaws(self, recorder: Recorder) -> list[str]:
        """Return a sentence for each test that fails without a reason, and for each reason that fits no test."""
        bad, fails_as = list(recorder.errors), recorder.fails_as
        unexplained = [test for test in bad if not any(fails_as(test, row) for row in self.failing)]
        idle = [row for row in self.failing if not any(fails_as(test, row) for test in bad)]
        missing = [row for row in self.skipped if not any(fnmatchcase(each, row) for each in recorder.skipped)]
        return [
            *(f"{test} fails without a reason: {recorder.errors[test]:.100}" for test in unexplained),
            *(f"no test fails as {row}" for row in idle),
            *(f"no test is {row}" for row in missing),
        ]

    def table(self, recorder: Recorder, at_random: Recorder) -> str:
        """Return Markdown tables: counts of tests by title, and the reasons of tests that fail or are skipped.

        `at_random` recorded the run in which random numbers replaced the embeddings.
        """
        lines = ["| class | pass | distinct fits of these | pass with random numbers | fail | skipped |"]
        lines.append("|---|---|---|---|---|---|")
        titles = [*((title, file.rsplit("/", 1)[-1]) for title, file in self.files.items()), ("all", "")]
        for title, names in titles if len(titles) > 2 else titles[:1]:
            passes = [test for test in recorder.fitted if test.startswith(names)]
            good = [test for test in passes if recorder.passed.get(test)]
            bad = [test for test in recorder.errors if test.startswith(names)]
            fits = set().union(*(recorder.fitted[test] for test in good))
            shallow = sum(at_random.passed.get(test, False) for test in good)
            left_out = sum(test.startswith(names) for test in recorder.skipped)
            lines.append(f"| {title} | {len(good)} | {len(fits)} | {shallow} | {len(bad)} | {left_out} |")
        lines += ["", "| tests | | why |", "|---|---|---|"]
        for outcome, rows, tests, matches in (
            ("fail", self.failing, list(recorder.errors), recorder.fails_as),
            ("skipped", self.skipped, recorder.skipped, fnmatchcase),
        ):
            for reason in dict.fromkeys(rows.values()):
                chosen = [row for row in rows if rows[row] == reason]
                count = sum(any(matches(test, row) for row in chosen) for test in tests)
                named = dict.fromkeys(f"`{row.split()[1]}`" for row in chosen if not row.startswith("*: "))
                names = ", ".join(named) or "by their errors"
                lines.append(f"| {names} | {count} {outcome} | {reason} |")
        return "\n".join(lines)


def alone(recorder: Recorder) -> int:
    """Return how many passing tests used no stand-in, and so tested the library alone."""
    return sum(is_passed for test, is_passed in recorder.passed.items() if test not in recorder.fitted)
