"""Tests of the study of movement, `docs.figures.movement`."""

import numpy as np
import pytest

from docs.figures.movement import finite, measure, sheet, summarize


def test_movement_of_pca_ranks_points_as_new_data_do() -> None:
    """PCA of a Gaussian cloud; the table has its numbers."""
    X = np.random.default_rng(1).standard_normal((300, 3)) * [3.0, 2.0, 1.0]
    data = finite("cloud", X, (X[:, 0] > 0).astype(np.int64), 40, 80)
    row = measure(data, "pca", 20, 20)
    assert (row.data, row.method) == ("cloud", "pca")
    assert row.level.startswith(("high", "moderate"))
    assert row.rho > 0.5
    assert 0.4 < row.ratio < 2.5
    cells = summarize([row, row._replace(rho=row.rho - 0.2)]).splitlines()[2].split(" | ")
    assert cells[0] == "| pca"
    assert float(cells[1]) == pytest.approx(row.rho - 0.1, abs=0.01)


def test_samples_keep_their_probes() -> None:
    """All samples begin with the same probes, the other points differ; a finite set has each point at most once."""
    X = np.arange(80.0)[:, None] * [1.0, 2.0]
    numbered = finite("set", X, np.arange(80), 20, 30)
    for data in (sheet("s_curve"), numbered):
        first, second = data.sample(0), data.sample(1)
        assert np.array_equal(first[: data.probes], second[: data.probes])
        assert not np.array_equal(first[data.probes :], second[data.probes :])
        assert np.array_equal(second, data.sample(1))
    assert len(np.unique(numbered.sample(3)[:, 0])) == 50
    assert numbered.labels is not None
    assert np.array_equal(X[numbered.labels], numbered.sample(0)[:20])


def test_the_factor_is_that_of_the_mean() -> None:
    """The mean of a sample of n new points varies by the factor more than that of one with common probes."""
    X = np.random.default_rng(0).standard_normal((400, 1))
    data = finite("set", X, np.zeros(400, np.int64), 30, 70)
    means = [float(data.sample(seed).mean()) for seed in range(1, 4000)]
    assert data.factor * np.std(means) == pytest.approx(X.std() / np.sqrt(100), rel=0.1)
