"""Calibration of the scale of draws: how the next scale is chosen, and doubts about the last one."""

from typing import Any

import numpy as np
import pytest

from glle_engine.reliability.calibration import Calibration, _between, _slope


def test_scales_are_searched_by_power_laws() -> None:
    """Of a ratio that grows as a power of the scale, the slope is its exponent, and interpolation finds the ratio 1."""
    far, near, last = ((scale, 0.5 * scale**0.4) for scale in (64.0, 2.0, 3.0))
    assert _slope([far, near, (0.3, 9.0), last]) == pytest.approx(0.4)
    assert _slope([last, far, last]) == 0.0
    assert _between(near, far) == pytest.approx(2.0 ** (1 / 0.4))


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"ratio": 0.5}, ["scale-not-matched"]),
        ({"ratio": 2.0, "rank_correlation": 0.0}, ["scale-not-matched", "scale-poorly-correlated"]),
        ({"ratio": 0.5, "slope": 0.01, "saturated": True}, ["scale-saturated"]),
    ],
)
def test_doubts_about_a_scale_are_notes(changes: dict[str, Any], codes: list[str]) -> None:
    """A scale without equal spreads, or with spreads of other points, has a note; a matched one has none."""
    found: dict[str, Any] = {"scale": 2.0, "ratio": 1.0, "rank_correlation": 0.9, "slope": 0.5, "saturated": False}
    spreads = {"half_sample_spread": np.ones(3), "draw_spread": np.ones(3), "trace": ((1.0, 0.5), (2.0, 1.0))}
    assert [note["code"] for note in Calibration(**found | spreads | changes).to_dict()["notes"]] == codes
