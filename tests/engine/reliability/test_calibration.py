"""Calibration of the scale of draws: how the next scale is chosen."""

import pytest

from glle_engine.reliability.calibration import _between, _slope


def test_scales_are_searched_by_power_laws() -> None:
    """Of a ratio that grows as a power of the scale, the slope is its exponent, and interpolation finds the ratio 1."""
    far, near, last = ((scale, 0.5 * scale**0.4) for scale in (64.0, 2.0, 3.0))
    assert _slope([far, near, (0.3, 9.0), last]) == pytest.approx(0.4)
    assert _slope([last, far, last]) == 0.0
    assert _between(near, far) == pytest.approx(2.0 ** (1 / 0.4))
