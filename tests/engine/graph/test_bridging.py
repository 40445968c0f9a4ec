"""Bridges between the closed classes of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from glle_engine import fit
from glle_engine.graph import bridging
from glle_engine.graph.bridging import bridge
from glle_engine.graph.connectivity import closed_classes, components, edges
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import Distances

if TYPE_CHECKING:
    from numpy.typing import NDArray


def clusters(seed: int, count: int, d: int, k: int) -> NDArray[np.float64]:
    """Return clusters of different sizes and widths, some of which overlap; every third seed has many ties."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.standard_normal((int(rng.integers(k + 1, 30)), d)) * rng.exponential()
        + rng.standard_normal(d) * 10 * rng.exponential()
        for _ in range(count)
    ]
    X = np.concatenate(parts)
    return np.round(X) if seed % 3 == 0 else X


def leads_to(graph: NDArray[np.int32], members: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return the points from which a set of points is reached, by following single edges."""
    reached = np.zeros(len(graph), bool)
    reached[members] = True
    while (further := reached | reached[graph].any(axis=1)).sum() > reached.sum():
        reached = further
    return reached


@pytest.mark.parametrize("seed", range(20))
def test_separate_clusters_of_heavy_tails_need_one_bridge(seed: int) -> None:
    """The shortest edge out of a cluster ends at a far point that leads back into it: no bridge."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, 2, 500)
    X = rng.standard_normal((500, 60)) * np.exp(0.5 * rng.standard_normal((500, 1)))
    X[:, 0] += 60 * cluster
    nearest = kneighbors(X, 10)[0]
    count = len(closed_classes(nearest))
    assert count > 1
    joined, _, bridges = bridge(X, nearest)
    assert len(bridges) == count - 1
    assert len(closed_classes(joined)) == 1
    if seed < 2:
        posterior = fit(X, disconnected="bridge")
        assert len(posterior.diagnostics.figures["bridges"]) == count - 1
        assert np.isfinite(posterior.draw(0).embedding).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 12),
    d=st.integers(1, 20),
    k=st.integers(2, 6),
    drop=st.booleans(),
)
def test_one_bridge_less_than_closed_classes(seed: int, count: int, d: int, k: int, drop: bool) -> None:  # noqa: FBT001
    """One closed class is left, whatever the graph, with or without dropped candidates, and for distances."""
    X = clusters(seed, count, d, k)
    if len(X) < k + 2:
        X = np.concatenate([X, X + 0.5])
    nearest = kneighbors(X, k)[0]
    kept = None
    if drop:
        kept = np.random.default_rng(seed).random(nearest.shape) < 0.6
        kept[~kept.any(axis=1), 0] = True
    before = closed_classes(edges(nearest, kept))
    for data in (X, Distances.among(cdist(X, X))):
        joined, still_kept, bridges = bridge(data, nearest, kept)
        graph = edges(joined, still_kept)
        assert len(bridges) == len(before) - 1
        assert len(closed_classes(graph)) == 1
        assert not components(graph).any()
        assert all(end in graph[start] for start, end in bridges)
        changed = np.flatnonzero((graph != edges(nearest, kept)).any(axis=1))
        assert set(changed.tolist()) <= {start for start, _ in bridges}
        assert all(len(set(row)) == k for row in joined.tolist())


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 8), width=st.sampled_from([4, 12, 64]))
def test_possible_bridges_are_the_shortest_to_points_that_lead_to_another_class(
    seed: int, count: int, width: int
) -> None:
    """By comparing all pairs, however many nearest points the common search sees."""
    X = clusters(seed, count, 3, 4)
    nearest = kneighbors(X, 4)[0]
    classes = closed_classes(nearest)
    if len(classes) == 1:
        return
    leads = np.stack([leads_to(nearest, members) for members in classes])
    reached = bridging._reachable_classes(nearest, classes)
    assert leads[reached, np.arange(len(X))[:, None]].all()
    np.testing.assert_array_equal(reached[:, 0] == reached[:, 1], leads.sum(axis=0) == 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bridging, "_SEARCHED", width)
        found = bridging._shortest_edges(X, classes, reached)
    distances = cdist(X, X)
    for number, edge in enumerate(found):
        ends = np.flatnonzero(np.delete(leads, number, axis=0).any(axis=0))
        assert edge.end in ends
        assert edge.start in classes[number]
        shortest = distances[np.ix_(classes[number], ends)].min()
        assert edge.length == pytest.approx(shortest, rel=1e-9, abs=1e-12)
        assert edge == bridging._closest_pair(X, classes[number], ends)
