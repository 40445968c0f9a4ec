"""Components, closed classes and the k that connects."""

from __future__ import annotations

import numpy as np
import pytest

from glle_engine import fit
from glle_engine.errors import DisconnectedGraphError
from glle_engine.graph import closed_classes, components, smallest_connecting_k
from glle_engine.neighbors import kneighbors


def test_two_clusters_are_refused_with_the_k_that_connects() -> None:
    """The error names components, sizes, and the smallest k; one less is refused, that k fits."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((60, 3)), rng.standard_normal((25, 3)) + 30])
    with pytest.raises(DisconnectedGraphError) as caught:
        fit(X, n_neighbors=8)
    details = caught.value.details
    assert details["components"] == 2
    assert details["sizes"] == [60, 25]
    k = details["smallest_connecting_k"]
    assert str(k) in caught.value.remedy
    with pytest.raises(DisconnectedGraphError):
        fit(X, n_neighbors=k - 1)
    assert fit(X, n_neighbors=k).spec.n_neighbors == k


def test_smallest_k_against_every_k() -> None:
    """The search agrees with trying every k in turn."""
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.standard_normal((n, 2)) + 12 * i for i, n in enumerate((9, 14, 30))])
    tried = next(k for k in range(3, len(X)) if components(kneighbors(X, k)[0]).max() == 0)
    assert smallest_connecting_k(X, 3) == tried


def test_closed_classes_of_a_known_graph() -> None:
    """A clump that is pointed to from outside is closed, what points to it is not."""
    neighbors = np.array([[1, 2], [0, 2], [0, 1], [0, 4], [3, 1], [6, 7], [5, 7], [5, 6]], np.int32)
    assert [members.tolist() for members in closed_classes(neighbors)] == [[0, 1, 2], [5, 6, 7]]
