"""Rows that are no independent samples: subjects, series and replicates, in order or shuffled."""

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine.audit.dependence import block_candidates, find_dependence

RNG = np.random.default_rng(0)


def subjects(rows: int, share: float, *, shuffled: bool = False) -> NDArray[np.float64]:
    """Return noise of subjects with some rows each; `share` of the variance is between subjects."""
    count = 240 // rows
    between = np.repeat(RNG.standard_normal((count, 10)), rows, axis=0)
    X = np.sqrt(share) * between + np.sqrt(1 - share) * RNG.standard_normal((count * rows, 10))
    return np.asarray(X[RNG.permutation(len(X))] if shuffled else X)


def series(memory: float) -> NDArray[np.float64]:
    """Return an autoregressive series."""
    X = RNG.standard_normal((300, 6))
    for row in range(1, 300):
        X[row] = memory * X[row - 1] + np.sqrt(1 - memory**2) * X[row]
    return X


@pytest.mark.parametrize(
    "X",
    [subjects(8, 0.8), subjects(8, 0.6), subjects(3, 0.8), series(0.97), subjects(3, 0.93, shuffled=True),
     subjects(2, 0.97, shuffled=True), subjects(8, 0.95, shuffled=True)],
)  # fmt: skip
def test_dependent_rows_are_noticed(X: NDArray[np.float64]) -> None:
    """Ordered subjects of eight rows, one long series, and shuffled replicates ask for blocks."""
    notes, reason = find_dependence(X)
    assert notes
    assert reason


@pytest.mark.parametrize(
    "X",
    [RNG.standard_normal((200, 4)), RNG.uniform(size=(300, 1)) @ np.ones((1, 3)), RNG.standard_normal((200, 200)),
     np.sort(RNG.integers(0, 3, 180))[:, None] * 9 + RNG.standard_normal((180, 3)), RNG.standard_t(2, (150, 6)),
     RNG.integers(0, 5, (200, 3)).astype(float), np.c_[np.cos(RNG.uniform(0, 7, 90)), np.sin(RNG.uniform(0, 7, 90))]],
)  # fmt: skip
def test_independent_rows_are_no_series(X: NDArray[np.float64]) -> None:
    """Neither many nor few columns, lines, sorted groups, tails nor ratings make rows dependent."""
    assert not find_dependence(X)[1]


def test_columns_of_ids_are_candidates_for_blocks() -> None:
    """Ids that repeat, or whose stems repeat, may be subjects; distinct ones and a few groups are not."""
    numbers = np.arange(60)
    columns = {
        "subject": [f"mouse {number // 3}" for number in numbers],
        "sample": [f"S{number // 3:02}_{number % 3 + 1}" for number in numbers],
        "well": [f"{number // 3}{'abc'[number % 3]}" for number in numbers],
        "row": [f"r{number}" for number in numbers],
        "group": [f"group {number % 2}" for number in numbers],
        "name": [f"name-{number}" for number in numbers],
    }
    notes = list(block_candidates(np.array(list(columns.values())).T, list(columns)))
    assert [note.message.split("'")[1] for note in notes] == ["subject", "sample", "well"]
    assert "give blocks='subject'" in notes[0].message
    assert "such as S00 in S00_1" in notes[1].message
    assert list(block_candidates(None)) == []
    assert len(list(block_candidates(numbers // 3))) == 1
