"""Advice on k and p."""

from __future__ import annotations

import json

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.base.errors import GlleError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.posterior.selection import advise, intrinsic_dimension


def test_curves_are_returned_whole() -> None:
    """Every k of the range has its row, and the suggestion is one of them that is connected."""
    X = manifolds.make("swiss_roll", 1000, seed=0).X
    reports: list[tuple[int, int, str]] = []
    advice = advise(X, n_neighbors=(4, 8, 12, 60), max_components=5, on_progress=lambda *a: reports.append(a))
    assert [row.n_neighbors for row in advice.neighbors_curve] == [4, 8, 12, 60]
    rows = {row.n_neighbors: row for row in advice.neighbors_curve}
    chosen = rows[advice.n_neighbors or 0]
    assert chosen.components == chosen.closed_classes == 1
    assert chosen.n_neighbors in {8, 12}
    assert rows[60].trustworthiness is not None
    assert chosen.trustworthiness is not None
    assert rows[60].trustworthiness < chosen.trustworthiness
    assert rows[60].reconstruction_error < rows[4].reconstruction_error
    assert [row.n_components for row in advice.components_curve] == [1, 2, 3, 4, 5]
    assert reports[-1] == (5, 5, "advice")
    assert json.loads(json.dumps(advice.to_dict(), allow_nan=False))["n_neighbors"] == advice.n_neighbors


def test_disconnected_graphs_are_shown_not_hidden() -> None:
    """If no graph of the range is connected, there is no suggestion, and the curve shows why."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((80, 3)), rng.standard_normal((80, 3)) + 50])
    advice = advise(X, n_neighbors=(5, 8))
    assert advice.n_neighbors is None
    assert advice.n_components is None
    assert [row.components for row in advice.neighbors_curve] == [2, 2]
    assert advice.neighbors_curve[0].trustworthiness is None


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_intrinsic_dimension_of_flat_data(dimension: int) -> None:
    """Flat data of known dimension in ten features."""
    rng = np.random.default_rng(dimension)
    X = rng.random((3000, dimension)) @ rng.standard_normal((dimension, 10))
    assert intrinsic_dimension(kneighbors(X, 12)[1]) == pytest.approx(dimension, rel=0.12)


def test_an_empty_range_is_refused() -> None:
    """No k at all, or none below n."""
    X = np.random.default_rng(0).random((12, 3))
    with pytest.raises(GlleError):
        advise(X, n_neighbors=())
    with pytest.raises(GlleError):
        advise(X, n_neighbors=(40,))
