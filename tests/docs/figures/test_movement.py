"""Tests of the study of movement, `docs.figures.movement`."""

import numpy as np
import pytest

from docs.figures.movement import HEAD, finite, row, sheet


def test_a_row_has_the_columns_of_the_head() -> None:
    """PCA of a Gaussian cloud: movement ranks points as new data do."""
    X = np.random.default_rng(1).standard_normal((300, 3)) * [3.0, 2.0, 1.0]
    data = finite("cloud", X, (X[:, 0] > 0).astype(np.int64), 40, 80)
    cells = [cell.strip() for cell in row(data, "pca", 20, 20).strip("|").split("|")]
    assert len(cells) == HEAD.splitlines()[0].count("|") - 1
    assert cells[:2] == ["cloud", "pca"]
    assert cells[2].startswith(("high", "moderate"))
    assert float(cells[3]) > 0.5
    assert 0.4 < float(cells[4]) < 2.5


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
