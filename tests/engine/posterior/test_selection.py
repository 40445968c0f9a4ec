"""Advice on k and p."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from glle_engine import manifolds
from glle_engine.base.errors import GlleError
from glle_engine.graph.neighbors import kneighbors
from glle_engine.posterior.selection import advise, intrinsic_dimension


def test_curves_are_returned_whole() -> None:
    """Every k of the range has its row, and the suggestion is one of them that is connected."""
    X = manifolds.make("swiss_roll", 1000, seed=0).X
    reports: list[tuple[int, int, str]] = []
    advice = advise(X, n_neighbors=(4, 8, 12, 60), max_components=5, on_progress=lambda *a: reports.append(a))
    rows = {row.n_neighbors: row for row in advice.neighbors_curve}
    assert list(rows) == [4, 8, 12, 60]
    chosen = rows[advice.n_neighbors or 0]
    assert chosen.components == chosen.closed_classes == 1
    assert chosen.n_neighbors in {8, 12}
    assert (rows[60].trustworthiness or 1) < (chosen.trustworthiness or 0)
    assert rows[60].reconstruction_error < rows[4].reconstruction_error
    assert [row.n_components for row in advice.components_curve] == [1, 2, 3, 4, 5]
    assert reports[-1] == (5, 5, "advice")
    assert json.loads(json.dumps(advice.to_dict(), allow_nan=False))["n_neighbors"] == advice.n_neighbors


@pytest.mark.parametrize(("dimension", "picture"), [(1, False), (2, False), (4, True)])
def test_the_suggested_components_are_the_dimensions_of_the_data(dimension: int, picture: bool) -> None:  # noqa: FBT001
    """A long sheet has its largest gap after the first coordinate, but two dimensions; the note has the words."""
    rng = np.random.default_rng(dimension)
    X = (rng.random((1500, dimension)) * np.linspace(3, 1, dimension)) @ rng.standard_normal((dimension, 8))
    advice = advise(X, n_neighbors=(12,), max_components=6)
    assert advice.n_components == dimension == round(advice.intrinsic_dimension)
    words = {note.code: note.message for note in advice.notes}
    assert f"some {advice.intrinsic_dimension:.1f} dimensions" in words["dimension"]
    assert f"n_components={dimension}" in words["dimension"]
    assert ("picture" in words["dimension"]) is picture


def test_the_digits_have_seven_dimensions() -> None:
    """Not one: suggestion and intrinsic dimension agree, and fewer examined components are named as such."""
    X = load_digits().data
    advice = advise(X, n_neighbors=(7, 10))
    assert (advice.n_components, round(advice.intrinsic_dimension)) == (7, 7)
    few = advise(X[:600], n_neighbors=(7, 10), max_components=3)
    assert few.n_components == 3
    assert "Raise max_components" in few.notes[0].message


def test_disconnected_graphs_are_shown_not_hidden() -> None:
    """If no graph of the range is connected, there is no suggestion, and the curve shows why."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((80, 3)), rng.standard_normal((80, 3)) + 50])
    advice = advise(X, n_neighbors=(5, 8))
    assert advice.n_neighbors is None
    assert advice.n_components is None
    assert [row.components for row in advice.neighbors_curve] == [2, 2]
    assert advice.neighbors_curve[0].trustworthiness is None


@pytest.mark.parametrize("ks", [(), (40,)])
def test_an_empty_range_is_refused(ks: tuple[int, ...]) -> None:
    """No k at all, or none below n."""
    with pytest.raises(GlleError):
        advise(np.random.default_rng(0).random((12, 3)), n_neighbors=ks)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_intrinsic_dimension_of_flat_data(dimension: int) -> None:
    """Flat data of known dimension in ten features."""
    rng = np.random.default_rng(dimension)
    X = rng.random((3000, dimension)) @ rng.standard_normal((dimension, 10))
    assert intrinsic_dimension(kneighbors(X, 12)[1]) == pytest.approx(dimension, rel=0.12)
