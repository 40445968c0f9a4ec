"""Distances without overflow: the unit in which they are computed."""

from glle_engine.linalg.distances import power_of_two


def test_a_unit_is_the_largest_power_of_two_that_is_no_larger() -> None:
    """The unit of an extent is a power of two, so that a division by it is exact."""
    assert [power_of_two(each) for each in (0.0, 0.3, 1.0, 1.5, 2.0, 5e-324)] == [1.0, 0.25, 1.0, 1.0, 2.0, 2.0**-1020]
