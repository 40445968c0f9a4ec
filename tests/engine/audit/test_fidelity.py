"""Fidelity of maps to the data: kept neighbors, and the order of distances."""

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.audit.fidelity import COMPONENTS, Fidelity
from glle_engine.methods import method


def test_kept_neighbors_are_those_of_ten_components() -> None:
    """All of the components' own, none beyond chance of random positions; noise features change nothing."""
    rng = np.random.default_rng(0)
    signal = 10 * rng.standard_normal((400, COMPONENTS))
    X = np.column_stack([signal, 0.01 * rng.standard_normal((400, 200))])
    fidelity = Fidelity.from_points(X)
    assert fidelity.kept(signal, 10) == pytest.approx(1, abs=0.01)
    assert fidelity.kept(rng.standard_normal((400, 2)), 10) == pytest.approx(0, abs=0.02)
    assert Fidelity.from_points(signal[:, :4]).kept(signal[:, :4], 10) == 1


def test_distances_are_straight_or_along_the_data() -> None:
    """An unrolled sheet orders distances as those along it, and the roll itself as the straight ones."""
    roll = manifolds.make("swiss_roll", 800, seed=0)
    fidelity = Fidelity.from_points(roll.X)
    straight, along = fidelity.layout(roll.X)
    assert straight == pytest.approx(1)
    assert along < 0.8
    assert Fidelity.from_points(2.0**600 * roll.X).layout(roll.X) == (straight, along)
    flat = fidelity.layout(method("isomap").embed(roll.X).Y)
    assert flat[1] > 0.95
    assert flat[0] < 0.8


def test_separate_parts_have_paths_between_them() -> None:
    """The shortest bridges connect the graph, so that all distances along the data are finite."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((60, 3)), rng.standard_normal((60, 3)) + 100, np.zeros((12, 3))])
    fidelity = Fidelity.from_points(X)
    assert np.isfinite(fidelity.along).all()
    assert min(fidelity.layout(X)) > 0.8
