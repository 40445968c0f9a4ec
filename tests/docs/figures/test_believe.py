"""Scores of single points, by audits and by other packages, as `docs.figures.believe` compares them."""

import numpy as np
import pytest

from docs.figures.believe import peers
from glle_engine import manifolds
from glle_engine.audit.audit import audit


def test_variance_of_distances_does_not_see_rotations() -> None:
    """The variance is 0 for rotated and scaled maps, and largest for the one point that moves."""
    Y = np.random.default_rng(1).standard_normal((30, 2))
    turned = Y @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(peers.distance_variance(np.stack([Y, turned])), 0, atol=1e-24)
    moved = turned.copy()
    moved[7] += 5
    assert peers.distance_variance(np.stack([Y, moved])).argmax() == 7


def test_scores_find_planted_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each score of given coordinates is rated by planted errors; packages that are not installed are left out."""
    monkeypatch.setattr(peers, "is_installed", lambda _: False)
    X = manifolds.make("s_curve", 120, seed=0).X
    result = audit(X, method="pca")
    rng = np.random.default_rng(2)
    places = result.embedding[None, :40] + 0.05 * rng.standard_normal((6, 40, 2))
    figures = peers.compare(X, "pca", result, places, seconds=9.0)
    assert not any(name.startswith(("dynamicviz", "zadu")) for name in figures)
    assert {name for name, row in figures.items() if row[3] is None} == {"audit, spread", "10th neighbor, data"}
    for name in ("audit, 1 - stability", "audit, p-value", "p-value as EMBEDR"):
        planted = figures[name][3]
        assert planted is not None
        assert planted > 0.9, name
    assert figures["audit, p-value"][4] == 9
