"""Calibration of the scale of draws: how the next scale is chosen."""

import pytest

from glle_engine.reliability.calibration import _between, _slope


def test_scales_are_searched_by_power_laws() -> None:
    """Of a ratio that grows as a power of the scale, the slope is its exponent, and interpolation finds the ratio 1."""
    trace = [(scale, 0.5 * scale**0.4) for scale in (1.0, 64.0, 2.0)]
    assert _slope([*trace, (3.0, 0.5 * 3.0**0.4)]) == pytest.approx(0.4)
    assert _slope([(3.0, 0.9), (9.0, 1.1), (3.0, 0.8)]) == 0.0
    assert _between(trace[0], trace[1]) == pytest.approx(2.0 ** (1 / 0.4))
