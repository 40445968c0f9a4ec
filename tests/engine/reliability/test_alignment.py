"""Aligned embeddings and their confidence regions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, spearmanr

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.linalg.rank_correlation import rank_correlation
from glle_engine.reliability.alignment import REGION_COVERAGES, Alignment, calibrated_regions, normalize


@settings(max_examples=4)
@given(st.integers(1, 3), st.integers(0, 100))
def test_regions_of_normal_places_have_the_stated_coverage(p: int, seed: int) -> None:
    """Regions of normal positions have chi-squared radii and cover new positions as stated."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((200, p, p)) + 0.5 * np.eye(p)
    center = rng.standard_normal((200, p))
    places = center + np.einsum("nij,mnj->mni", roots, rng.standard_normal((700, 200, p)))
    regions = calibrated_regions(Alignment(center, places[:400]))
    for level in REGION_COVERAGES:
        assert regions.radius(level) == pytest.approx(np.sqrt(chi2.ppf(level, p)), rel=0.03)
        covered = np.mean([regions.contains(place, level) for place in places[400:]])
        assert covered == pytest.approx(level, abs=0.015)
    heavy = calibrated_regions(Alignment(center, rng.standard_t(2, (400, 200, p))))
    assert heavy.radius(0.9) / heavy.radius(0.5) > 1.2 * np.sqrt(chi2.ppf(0.9, p) / chi2.ppf(0.5, p))


@pytest.mark.parametrize(("pairs", "extra"), [(4, 0.0), (4, 0.3), (8, 0.0)])
def test_regions_of_pairs_of_halves_have_the_stated_coverage(pairs: int, extra: float) -> None:
    """Regions from pairs of halves that deviate in opposite directions cover the mean as stated."""
    covered, n = [], 300
    for seed in range(6):
        rng = np.random.default_rng(seed)
        center = rng.standard_normal((n, 2))  # the mean over new samples is 0
        off = rng.standard_normal((pairs, n, 2))
        halves = np.stack([off, -off], axis=1).reshape(2 * pairs, n, 2)
        aligned = Alignment(center, center + halves + extra * rng.standard_normal(halves.shape))
        regions = calibrated_regions(aligned, together=2)
        covered.append(regions.contains(np.zeros((n, 2)), 0.9).mean())
    assert 0.89 < np.mean(covered) < 0.97


def test_axes_are_those_of_the_covariance() -> None:
    """Half-axes are orthogonal, the longest first, and their outer products add up to the covariance."""
    rng = np.random.default_rng(4)
    places = np.einsum("nij,mnj->mni", rng.standard_normal((30, 2, 2)), rng.standard_normal((50, 30, 2)))
    regions = calibrated_regions(Alignment(np.zeros((30, 2)), places))
    axes, off = regions.half_axes, places - places.mean(axis=0)
    np.testing.assert_allclose(np.einsum("nja,njb->nab", axes, axes), np.einsum("mna,mnb->nab", off, off) / 49)
    np.testing.assert_allclose(np.einsum("na,na->n", axes[:, 0], axes[:, 1]), 0, atol=1e-12)
    lengths = np.linalg.norm(axes, axis=2)
    assert (lengths[:, 0] >= lengths[:, 1]).all()
    for level in REGION_COVERAGES:
        on_edge = regions.center + regions.axes(level)[:, 0] * (1 - 1e-9)
        assert regions.contains(on_edge, level).all()
        assert not regions.contains(regions.center + regions.axes(level)[:, 1] * (1 + 1e-9), level).any()
    assert regions.to_dict() == {"levels": list(REGION_COVERAGES), "radii": list(regions.radii)}
    assert regions.of_new_sample().radii == pytest.approx([np.sqrt(2) * radius for radius in regions.radii])
    with pytest.raises(InvalidParameterError, match=r"coverage 0.95. Choose one of the coverages 0.5, 0.9"):
        regions.axes(0.95)


def test_a_point_that_never_moves_has_itself_as_its_region() -> None:
    """The region of a point that never moves contains only the point itself."""
    places = np.random.default_rng(5).standard_normal((20, 6, 2))
    places[:, 0] = 0.0
    regions = calibrated_regions(Alignment(np.zeros((6, 2)), places))
    assert (regions.half_axes[0] == 0).all()
    assert np.isfinite(regions.radii).all()
    assert regions.contains(np.zeros((6, 2)), 0.9)[0]
    assert not regions.contains(np.full((6, 2), 1e-300), 0.9)[0]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.floats(-1e6, 1e6)), min_size=3, max_size=60).filter(
        lambda pairs: all(len(set(column)) > 1 for column in zip(*pairs, strict=True))
    )
)
def test_rank_correlation_is_spearmans(pairs: list[tuple[int, float]]) -> None:
    """The correlation equals scipy's, also with ties; that of an array with itself is exactly 1."""
    a, b = np.array(pairs, float).T
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)
    assert rank_correlation(b, a) == rank_correlation(a, b)
    assert (rank_correlation(a, a), rank_correlation(a, -a)) == (1, -1)
    assert rank_correlation(a, np.ones(len(a))) == 0, "no order"


def test_refusals() -> None:
    """Embeddings of another shape, and fewer than four, are refused."""
    original = np.zeros((30, 2))
    with pytest.raises(InvalidShapeError, match=r"have shape \(4, 29, 2\).*\(30, 2\)"):
        Alignment.from_maps(np.zeros((4, 29, 2)), original)
    with pytest.raises(InvalidShapeError, match=r"have shape \(3, .*at least 4"):
        Alignment.from_maps(np.zeros((3, 30, 2)), original)


def test_normalized_embeddings_have_mean_0_and_mean_square_radius_1() -> None:
    """Wherever they were, and the mean and the scale lead back; equal points have no scale, and stay equal."""
    Y = np.random.default_rng(3).standard_normal((50, 2)) * 4 + [30.0, -20.0]
    unit, center, scale = normalize(Y)
    np.testing.assert_allclose(unit.mean(axis=0), 0, atol=1e-12)
    assert (unit**2).sum(axis=1).mean() == pytest.approx(1)
    np.testing.assert_allclose(unit * scale + center, Y)
    np.testing.assert_array_equal(normalize(np.full((5, 2), 7.0))[0], np.zeros((5, 2)))
