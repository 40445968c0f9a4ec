"""Tests of `glle_engine.methods.costs`."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glle_engine.methods import METHODS, costs


def test_a_product_is_its_factors() -> None:
    """Powers, logarithms and the constant."""
    values = {"n": 3.0, "k": 2.0}
    assert costs.product("1", values) == 1
    assert costs.product("n k^2", values) == 12
    assert costs.product("n log(n)", values) == pytest.approx(3 * math.log(3))
    assert costs.evaluate({"1": 5, "n k": 2}, values) == 17
    with pytest.raises(KeyError, match="d"):
        costs.product("n d", values)


def test_the_table_is_complete() -> None:
    """Every method has a row, every row a method; no coefficient is negative; the file names machine and command."""
    document = json.loads(costs.TABLE.read_text(encoding="utf-8"))
    assert document["machine"]
    assert document["command"].startswith("python -m docs.figures.methods")
    assert {row.split(", ")[0] for row in costs.table()} == set(METHODS)
    for cells in costs.table().values():
        assert set(cells) == {"seconds", "bytes"}
        for terms in cells.values():
            assert all(value >= 0 for value in terms.values())
            assert sum(terms.values()) > 0


@settings(max_examples=50)
@given(n=st.integers(60, 10**6), more=st.integers(0, 10**5), d=st.integers(1, 10**4))
def test_costs_grow_with_the_points(n: int, more: int, d: int) -> None:
    """More points cost no less, except where a method goes over to another solver or to fewer epochs."""

    def sizes(n: int) -> tuple[bool, ...]:
        return n > 2000, n > 3000, n >= 10_000, n > 10_000

    if sizes(n) != sizes(n + more):
        return
    for name, method in METHODS.items():
        spec = method.spec()
        small, large = method.cost(n, d, spec), method.cost(n + more, d, spec)
        assert 0 < small.seconds <= large.seconds, name
        assert 0 < small.bytes <= large.bytes, name


def test_a_route_has_its_row() -> None:
    """Options that choose another algorithm choose another row."""
    for name, options, row in (
        ("mds", {"dissimilarity": "precomputed"}, "mds, precomputed"),
        ("glle", {"variant": "published", "n_neighbors": 10}, "glle, published"),
        ("glle", {"noise": "tangent", "n_neighbors": 10}, "glle, tangent"),
    ):
        spec = METHODS[name].spec(**options)
        k = getattr(spec, "n_neighbors", 0)
        assert METHODS[name].cost(500, 20, spec) == costs.estimate(row, 500, 20, k=k, p=spec.n_components)
