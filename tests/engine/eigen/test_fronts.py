"""Fronts with several supernodes: dense graphs, whose factors a dense elimination confirms."""

from __future__ import annotations

import numpy as np
import pytest

from glle_engine.eigen.batched.numeric.factorization import factorise
from glle_engine.eigen.batched.numeric.single import SingleLU
from glle_engine.eigen.batched.solver import Workspace
from glle_engine.eigen.batched.symbolic.elimination import MOST, WIDEST
from glle_engine.eigen.batched.symbolic.structure import Structure, analyse
from glle_engine.eigen.pattern import Pattern
from glle_engine.linalg import LANES


def tangled(n: int, k: int) -> Structure:
    """Return the structure of a random graph, whose last separator is a large part of it."""
    rng = np.random.default_rng(n)
    neighbors = np.array([np.sort(rng.choice(np.delete(np.arange(n), i), k, replace=False)) for i in range(n)])
    pattern, _ = Pattern.of(neighbors.astype(np.int32)).order_for(1)
    return analyse(pattern.neighbors, pattern.order)


@pytest.fixture(scope="module", params=[(150, 5), (400, 6)])
def structure(request: pytest.FixtureRequest) -> Structure:
    """Return structures with one wide front, and with a chain of the widest fronts."""
    return tangled(*request.param)


def test_fronts_are_cut_into_supernodes_with_their_rows(structure: Structure) -> None:
    """Each supernode of a front has the columns of the next ones and the rows of the front below it."""
    widths, pieces = np.diff(structure.first), np.diff(structure.front)
    assert widths.max() == WIDEST
    assert widths.min() > 0
    assert 1 < pieces.max() <= MOST
    assert structure.front[-1] == len(widths)
    below = np.diff(structure.place_start)
    for f, (begin, end) in enumerate(zip(structure.front[:-1], structure.front[1:], strict=True)):
        last = structure.rows[structure.row_start[end - 1] : structure.row_start[end]]
        assert len(last) == below[f]
        for node in range(begin, end):
            columns = np.arange(structure.first[node + 1], structure.first[end])
            rows = structure.rows[structure.row_start[node] : structure.row_start[node + 1]]
            assert np.array_equal(rows, np.concatenate([columns, last]))
            if node + 1 < end:
                assert structure.parent[node] == node + 1


def test_every_row_has_its_place_in_the_front_of_the_parent(structure: Structure) -> None:
    """A place among the parent's columns and rows holds the same position."""
    for f in range(len(structure.child)):
        end = structure.front[f + 1]
        columns = np.arange(structure.first[structure.front[f]], structure.first[end])
        indices = np.concatenate([columns, structure.rows[structure.row_start[end - 1] : structure.row_start[end]]])
        child = structure.child[f]
        while child >= 0:
            start, stop = structure.place_start[child], structure.place_start[child + 1]
            last = structure.front[child + 1]
            rows = structure.rows[structure.row_start[last - 1] : structure.row_start[last]]
            assert np.array_equal(indices[structure.place[start:stop]], rows)
            child = structure.sibling[child]


def test_factors_solve_in_every_lane(structure: Structure) -> None:
    """L U = I - W + e_i e_i^T, and each lane has the bits of a factorization by itself."""
    n, k = structure.neighbors.shape
    rng = np.random.default_rng(2)
    room = Workspace(structure, 1)
    weights = rng.uniform(-0.9 / k, 0.9 / k, (n, k, LANES))  # diagonally dominant: nothing to pivot
    room.weights[:] = weights.ravel()
    pins = rng.integers(0, n, LANES).astype(np.int32)
    factorise(room.tag, structure, room.weights, pins, room.lower, room.upper, room.blocks, room.scratch)
    for lane in range(LANES):
        of_points = np.empty((n, k))
        of_points[structure.order] = weights[:, :, lane]
        single = SingleLU.factor(structure, of_points, structure.order[pins[lane : lane + 1]])
        assert single.lower.tobytes() == room.lower[lane::LANES].tobytes()
        assert single.upper.tobytes() == room.upper[lane::LANES].tobytes()
        matrix = np.eye(n)
        np.subtract.at(matrix, (np.arange(n)[:, None], structure.neighbors), weights[:, :, lane])
        matrix[pins[lane], pins[lane]] += 1
        b = np.asarray(rng.standard_normal(n))
        np.testing.assert_allclose(matrix @ single.solve(b, "T"), b, atol=1e-11)
        np.testing.assert_allclose(matrix.T @ single.solve(b), b, atol=1e-11)
