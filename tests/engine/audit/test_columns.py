"""Clusters of single columns, on columns whose modes are known."""

import numpy as np
import pytest

from glle_engine.audit.audit import audit
from glle_engine.audit.columns import excess_mass, find_clustered_columns


def test_clusters_of_independent_columns_are_named() -> None:
    """Three columns with two clusters each are eight groups in a map, and no relation."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    X[:, :3] += 8 * (rng.random((300, 3)) < 0.5)
    audited = audit(X, method="pca", names=list("abcde"))
    assert (audited.level, audited.beyond_chance) == ("partly", False)
    assert audited.statement.trusted == ()
    assert "column 'a', column 'b' and column 'c' have clusters" in audited.verdict.replace("Column", "column")


@pytest.mark.parametrize("n", [40, 200, 1000])
def test_columns_with_one_mode_have_no_clusters(n: int) -> None:
    """Neither tails, skew, ratings, counts nor two values are clusters."""
    rng = np.random.default_rng(n)
    columns = [
        rng.random(n), rng.standard_normal(n), rng.standard_cauchy(n), rng.exponential(size=n), rng.integers(1, 6, n),
        rng.poisson(2, n), rng.integers(0, 2, n), np.exp(rng.standard_normal(n)), np.zeros(n),
    ]  # fmt: skip
    assert find_clustered_columns(np.column_stack(columns).astype(float)) == []


def test_excess_mass_of_two_clusters() -> None:
    """The second of two equal, narrow clusters has half of the mass; evenly spaced values have one mode."""
    narrow = np.concatenate([np.linspace(0, 1e-3, 50), np.linspace(9, 9.001, 50)])
    assert excess_mass(narrow) == pytest.approx(0.5, abs=0.03)
    assert excess_mass(np.linspace(0, 1, 100)) < 0.02
    assert excess_mass(np.repeat([1.0, 2.0], 50)) == 0
    assert excess_mass(5 + 3 * narrow) == pytest.approx(excess_mass(narrow)), "units do not matter"
