"""Tests of the study of movement, `docs.figures.movement`."""

import numpy as np

from docs.figures.movement import HEAD, finite, row


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
