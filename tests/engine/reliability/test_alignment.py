"""Aligned embeddings: moments, rank correlations, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from glle_engine.base.errors import InvalidShapeError
from glle_engine.reliability.alignment import Alignment, rank_correlation


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.floats(-1e6, 1e6)), min_size=3, max_size=60).filter(
        lambda pairs: all(len(set(column)) > 1 for column in zip(*pairs, strict=True))
    )
)
def test_rank_correlation_is_spearmans(pairs: list[tuple[int, float]]) -> None:
    """With ties too; the correlation of an array with itself is exactly 1, with its negative exactly -1."""
    a, b = np.array(pairs, float).T
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)
    assert rank_correlation(b, a) == rank_correlation(a, b)
    assert (rank_correlation(a, a), rank_correlation(a, -a)) == (1, -1)
    assert rank_correlation(a, np.ones(len(a))) == 0, "no order"


def test_kinds_are_weighted_by_their_factors() -> None:
    """The covariance is the mean of those of the kinds, each times its factor."""
    rng = np.random.default_rng(0)
    original = rng.standard_normal((30, 2))
    kinds = [original + 0.1 * rng.standard_normal((m, 30, 2)) for m in (9, 5)]
    aligned = Alignment.of(kinds, original, (1.0, 3.0))
    first, second = ([np.cov(kind[:, i].T) for i in range(30)] for kind in aligned.kinds)
    np.testing.assert_allclose(aligned.covariance, (np.array(first) + 3 * np.array(second)) / 2)
    assert [len(kind) for kind in aligned.kinds] == [9, 5]
    seen: list[tuple[int, int, str]] = []
    found = aligned.split_half_correlations(lambda *report: seen.append(report))
    assert found == aligned.split_half_correlations()
    assert len(found) == 3, "together, and each kind"
    assert seen[-1] == (len(seen), len(seen), "reliability")


def test_refusals() -> None:
    """Other shapes and too few embeddings, with the kind."""
    original = np.zeros((30, 2))
    with pytest.raises(InvalidShapeError, match=r"kind 1 have shape \(4, 29, 2\).*\(30, 2\)"):
        Alignment.of((np.zeros((4, 30, 2)), np.zeros((4, 29, 2))), original)
    with pytest.raises(InvalidShapeError, match=r"kind 0 have shape \(3, .*at least 4"):
        Alignment.of((np.zeros((3, 30, 2)),), original)
