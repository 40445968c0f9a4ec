"""Single linkage by mutual reachability, against scipy."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from glle_engine.linalg.single_linkage import single_linkage


@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 2), (60, 2), (300, 3)])
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_merges_are_those_of_scipy(n: int, d: int, step: float) -> None:
    """Also if many distances are equal, as those of points on a grid."""
    rng = np.random.default_rng(n)
    points, core = rng.standard_normal((n, d)), 0.3 * rng.random(n)
    if step:
        points, core = np.round(points / step) * step, np.full(n, step)
    first, second = np.triu_indices(n, 1)
    reachability = np.maximum(pdist(points), np.maximum(core[first], core[second]))
    np.testing.assert_array_equal(single_linkage(points, core), linkage(reachability, "single"))
