"""Run a suite on stand-ins by pytest, and count its tests: those that pass, those that fail by reason, and the rest."""

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
    """Base of the stand-ins: which fits a test uses, and random numbers in place of every embedding.

    `used` are the distinct fits since the test began. With `random`, numbers from it replace every embedding.
    """

    used: ClassVar[set[str]] = set()
    random: ClassVar[np.random.Generator | None] = None

    @staticmethod
    def placed(Y: NDArray[Any]) -> NDArray[Any]:
        """Return positions (m, p), or random numbers of their shape and type."""
        random = Fits.random
        return Y if random is None else random.standard_normal(Y.shape).astype(Y.dtype)


def key_of(name: str, data: Any, parameters: Mapping[str, Any]) -> str:
    """Return a text that differs between distinct fits of data (n, d), dense or sparse."""
    values = np.ascontiguousarray(data.toarray() if issparse(data) else data)
    described = repr(sorted((each, str(value)) for each, value in parameters.items()))
    return f"{name} {hashlib.sha256(values.tobytes()).hexdigest()} {described}"


class Recorder:
    """Pytest plugin: whether each test passed, and the distinct fits of each test that used a stand-in."""

    def __init__(self, skipped: Mapping[str, str]) -> None:
        self.rows = skipped
        self.passed: dict[str, bool] = {}
        self.fitted: dict[str, set[str]] = {}
        self.errors: dict[str, str] = {}
        self.skipped: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Skip the tests of the rows."""
        for item in items:
            if any(fnmatchcase(short(item.nodeid), row) for row in self.rows):
                self.skipped.append(short(item.nodeid))
                item.add_marker(pytest.mark.skip)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Note the distinct fits of a test and of its fixtures."""
        Fits.used.clear()
        try:
            return (yield)
        finally:
            if Fits.used:
                self.fitted[short(item.nodeid)] = set(Fits.used)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the result; skipped tests have none."""
        if report.failed or (report.when == "call" and report.passed):
            self.passed[short(report.nodeid)] = report.passed
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.errors[short(report.nodeid)] = str(crash.message if crash else report.longrepr)

    def fails_as(self, test: str, row: str) -> bool:
        """Return whether a pattern is that of a failing test, or, if it begins with `*: `, of its error."""
        return fnmatchcase(f"*: {self.errors[test]}" if row.startswith("*: ") else test, row)


def short(nodeid: str) -> str:
    """Return the file, the test and its parameters, without the brackets that patterns give a meaning."""
    return nodeid.rsplit("/", 1)[-1].replace("::", " ").replace("[", " ").replace("]", "")


@dataclass(frozen=True)
class Suite:
    """Files of tests by title, below a folder.

    `failing` has the reason why tests fail by a pattern of tests (a file, a test, its parameters) or of their errors
    (`*: *text*`), and `skipped` why tests do not run.
    """

    folder: Path
    files: dict[str, str]
    failing: dict[str, str]
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, words: list[str], random: np.random.Generator | None = None) -> Recorder:
        """Run the tests with arguments of pytest; numbers from `random` replace every embedding."""
        Fits.random, recorder = random, Recorder(self.skipped)
        files = [str(self.folder / file) for file in self.files.values()]
        options = ["-c", os.devnull, "--rootdir", str(self.folder), "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        options += ["--tb=no", "-rN"] if random else []
        pytest.main([*options, *words, *files], plugins=[recorder])
        return recorder

    def flaws(self, recorder: Recorder) -> list[str]:
        """Return the tests that fail without a reason, and the reasons without a test."""
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
        """Return the numbers of tests by title, and the reasons of those that fail or are skipped, as Markdown."""
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
    """Return how many tests pass without a stand-in."""
    return sum(is_passed for test, is_passed in recorder.passed.items() if test not in recorder.fitted)
