"""HDBSCAN against scikit-learn."""

import numpy as np
import pytest
from sklearn.cluster import HDBSCAN

from glle_engine.audit.hdbscan import clusters_of


@pytest.mark.parametrize("unit", [1.0, 2.0**-80])
def test_clusters_are_those_of_scikit_learn(unit: float) -> None:
    """In any unit; points that are all equal are in no cluster."""
    rng = np.random.default_rng(0)
    Y = np.concatenate([rng.normal(center, scale, (50, 2)) for center, scale in ((0, 1), (9, 0.5), (12, 0.5), (5, 9))])
    expected = HDBSCAN(min_cluster_size=8, copy=True).fit_predict(Y)
    assert set(expected) == {-1, 0, 1, 2}
    pairs = set(zip(clusters_of(unit * Y, 8).tolist(), expected.tolist(), strict=True))
    assert len(pairs) == 4, "each cluster is a cluster, and noise is noise"
    assert (-1, -1) in pairs
    assert set(clusters_of(np.zeros((40, 2)), 8)) == {-1}
