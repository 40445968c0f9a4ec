"""Regions: the stated coverage where the truth is known exactly, and axes that can be drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from glle_engine.base.errors import InvalidParameterError
from glle_engine.reliability.alignment import Alignment
from glle_engine.reliability.regions import LEVELS, Regions, calibrated_regions


@settings(max_examples=4)
@given(st.integers(1, 3), st.integers(0, 100))
def test_regions_of_normal_places_have_the_stated_coverage(p: int, seed: int) -> None:
    """Radii are the roots of chi-squared quantiles, and fresh places are covered as stated."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((200, p, p)) + 0.5 * np.eye(p)
    center = rng.standard_normal((200, p))
    places = center + np.einsum("nij,mnj->mni", roots, rng.standard_normal((700, 200, p)))
    regions = calibrated_regions(Alignment(center, (places[:200], places[200:400]), (1.0, 1.0)))
    for level in LEVELS:
        assert regions.radius(level) == pytest.approx(np.sqrt(chi2.ppf(level, p)), rel=0.03)
        covered = np.mean([regions.contains(place, level) for place in places[400:]])
        assert covered == pytest.approx(level, abs=0.015)


def test_a_factor_widens_the_regions() -> None:
    """A stack with half of the deviations and the factor 4 gives the regions of the stack itself."""
    rng = np.random.default_rng(2)
    center, off = rng.standard_normal((50, 2)), rng.standard_normal((40, 50, 2))
    plain = calibrated_regions(Alignment(center, (center + off, center + off), (1.0, 1.0)))
    scaled = calibrated_regions(Alignment(center, (center + off, center + off / 2), (1.0, 4.0)))
    np.testing.assert_allclose(scaled.axes(0.9), plain.axes(0.9), rtol=1e-9)


def test_heavy_tails_widen_the_outer_region_more() -> None:
    """The ratio of the radii is above that of normal places: regions are calibrated, not assumed."""
    rng = np.random.default_rng(3)
    places = rng.standard_t(2, (400, 100, 2))
    regions = calibrated_regions(Alignment(np.zeros((100, 2)), (places,), (1.0,)))
    normal = np.sqrt(chi2.ppf(0.9, 2) / chi2.ppf(0.5, 2))
    assert regions.radius(0.9) / regions.radius(0.5) > 1.2 * normal


def test_axes_are_those_of_the_covariance() -> None:
    """Rows are orthogonal, the longest first; their outer products add up to the covariance at radius 1."""
    rng = np.random.default_rng(4)
    places = np.einsum("nij,mnj->mni", rng.standard_normal((30, 2, 2)), rng.standard_normal((50, 30, 2)))
    regions = calibrated_regions(Alignment(np.zeros((30, 2)), (places,), (1.0,)))
    axes = regions.half_axes
    off = places - places.mean(axis=0)
    np.testing.assert_allclose(np.einsum("nja,njb->nab", axes, axes), np.einsum("mna,mnb->nab", off, off) / 49)
    np.testing.assert_allclose(np.einsum("na,na->n", axes[:, 0], axes[:, 1]), 0, atol=1e-12)
    lengths = np.linalg.norm(axes, axis=2)
    assert (lengths[:, 0] >= lengths[:, 1]).all()
    for level in LEVELS:
        on_edge = regions.center + regions.axes(level)[:, 0] * (1 - 1e-9)
        assert regions.contains(on_edge, level).all()
        assert not regions.contains(regions.center + regions.axes(level)[:, 1] * (1 + 1e-9), level).any()
    assert regions.to_dict() == {"levels": list(LEVELS), "radii": list(regions.radii)}


def test_a_point_that_never_moves_has_itself_as_its_region() -> None:
    """No division by zero: any other place is outside."""
    places = np.random.default_rng(5).standard_normal((20, 6, 2))
    places[:, 0] = 0.0
    regions = calibrated_regions(Alignment(np.zeros((6, 2)), (places,), (1.0,)))
    assert (regions.half_axes[0] == 0).all()
    assert np.isfinite(regions.radii).all()
    assert regions.contains(np.zeros((6, 2)), 0.9)[0]
    assert not regions.contains(np.full((6, 2), 1e-300), 0.9)[0]


def test_an_unknown_level_is_refused() -> None:
    """The error names the levels."""
    regions = Regions(np.zeros((1, 2)), np.ones((1, 2, 2)), LEVELS, (1.0, 2.0))
    with pytest.raises(InvalidParameterError, match=r"level=0.95 .*0.5, 0.9"):
        regions.axes(0.95)


def test_regions_of_a_new_sample_are_wider_by_the_root_of_two() -> None:
    """A new place and the reference scatter alike around the mean place."""
    center = np.zeros((4, 2))
    regions = Regions(center, np.repeat(np.eye(2)[None], 4, axis=0), (0.5, 0.9), (1.0, 2.0))
    assert regions.of_new_sample().radii == pytest.approx((np.sqrt(2), 2 * np.sqrt(2)))
    np.testing.assert_array_equal(regions.of_new_sample().half_axes, regions.half_axes)
