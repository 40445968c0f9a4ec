"""The program behind the table of Isomap's short circuits."""

from __future__ import annotations

from docs.figures import short_circuits


def test_short_circuits_raise_the_residual_variance() -> None:
    """Every graph with them is above the limit of the note, and every graph without them below it."""
    graphs = list(short_circuits.count_short_circuits("swiss_roll", 0, 0.0))
    assert {jumps > 0 for jumps, _ in graphs} == {False, True}
    assert all((variance > 0.04) == (jumps > 0) for jumps, variance in graphs)
