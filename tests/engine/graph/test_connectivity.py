"""Components, closed classes and the k that connects."""

from __future__ import annotations

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.graph.connectivity import closed_classes, components, smallest_connecting_k
from glle_engine.graph.neighbors import kneighbors


def test_two_clusters_are_refused_with_the_k_that_connects() -> None:
    """The error names components, sizes, and the smallest k; one less is refused, that k fits."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((60, 3)), rng.standard_normal((25, 3)) + 30])
    with pytest.raises(DisconnectedGraphError) as caught:
        fit(X, n_neighbors=8, disconnected="error")
    details = caught.value.details
    assert details["components"] == 2
    assert details["sizes"] == [60, 25]
    k = details["smallest_connecting_k"]
    assert str(k) in caught.value.remedy
    with pytest.raises(DisconnectedGraphError):
        fit(X, n_neighbors=k - 1, disconnected="error")
    assert fit(X, n_neighbors=k, disconnected="error").spec.n_neighbors == k


def test_smallest_k_against_every_k() -> None:
    """The search agrees with trying every k in turn."""
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.standard_normal((n, 2)) + 12 * i for i, n in enumerate((9, 14, 30))])
    tried = next(k for k in range(3, len(X)) if components(kneighbors(X, k)[0]).max() == 0)
    assert smallest_connecting_k(X, 3) == tried


def test_closed_classes_of_a_known_graph() -> None:
    """A clump with edges from outside is closed; the points outside are not."""
    neighbors = np.array([[1, 2], [0, 2], [0, 1], [0, 4], [3, 1], [6, 7], [5, 7], [5, 6]], np.int32)
    assert [members.tolist() for members in closed_classes(neighbors)] == [[0, 1, 2], [5, 6, 7]]


@pytest.mark.parametrize("d", [3, 20])
def test_bridging_joins_components_and_classes(d: int) -> None:
    """Three clusters are embedded together, with the shortest edges between them named."""
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.standard_normal((40, d)) + 60 * i for i in range(3)])
    fitted = fit(X, n_neighbors=6, disconnected="bridge")
    figures = fitted.diagnostics.figures
    assert len(figures["closed_classes"]) == 1
    assert "bridged" in {note.code for note in fitted.diagnostics.notes}
    cluster = np.arange(120) // 40
    between = [(start, end) for start, end in figures["bridges"] if cluster[start] != cluster[end]]
    assert {frozenset((cluster[start], cluster[end])) for start, end in between} >= {
        frozenset((0, 1)),
        frozenset((1, 2)),
    }
    assert all(end in fitted.neighbors[start] for start, end in figures["bridges"])
    assert len(figures["bridges"]) <= 12
    assert np.isfinite(fitted.draw(0).embedding).all()


def test_bridging_leaves_a_whole_graph_alone() -> None:
    """Where nothing is to be bridged nothing changes."""
    sheet = manifolds.make("s_curve", 120, seed=1).X
    plain, bridged = fit(sheet, disconnected="error"), fit(sheet)
    assert plain.embedding.tobytes() == bridged.embedding.tobytes()
    assert bridged.diagnostics.figures["bridges"] == []
