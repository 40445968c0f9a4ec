"""Aligned embeddings and their regions: moments, the stated coverage, and axes that can be drawn."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2, spearmanr

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.reliability.alignment import LEVELS, Alignment, calibrated_regions, rank_correlation
from glle_engine.reliability.statements import (
    movement_reliability,
    spread_reliability,
    state_movement,
    state_spread,
)
from glle_engine.reliability.thresholds import HIGH_CORRELATION, MODERATE_CORRELATION


@settings(max_examples=4)
@given(st.integers(1, 3), st.integers(0, 100))
def test_regions_of_normal_places_have_the_stated_coverage(p: int, seed: int) -> None:
    """Radii are the roots of chi-squared quantiles, of heavy tails not; fresh places are covered as stated."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((200, p, p)) + 0.5 * np.eye(p)
    center = rng.standard_normal((200, p))
    places = center + np.einsum("nij,mnj->mni", roots, rng.standard_normal((700, 200, p)))
    regions = calibrated_regions(Alignment(center, (places[:200], places[200:400]), (1.0, 1.0)))
    for level in LEVELS:
        assert regions.radius(level) == pytest.approx(np.sqrt(chi2.ppf(level, p)), rel=0.03)
        covered = np.mean([regions.contains(place, level) for place in places[400:]])
        assert covered == pytest.approx(level, abs=0.015)
    heavy = calibrated_regions(Alignment(center, (rng.standard_t(2, (400, 200, p)),), (1.0,)))
    assert heavy.radius(0.9) / heavy.radius(0.5) > 1.2 * np.sqrt(chi2.ppf(0.9, p) / chi2.ppf(0.5, p))


@pytest.mark.parametrize(("pairs", "extra"), [(4, 0.0), (4, 0.3), (8, 0.0)])
def test_regions_of_pairs_of_halves_have_the_stated_coverage(pairs: int, extra: float) -> None:
    """Two separate halves deviate from the mean in opposite directions, and a fold has both of them."""
    covered, n = [], 300
    for seed in range(6):
        rng = np.random.default_rng(seed)
        center = rng.standard_normal((n, 2))  # the mean over new samples is 0
        off = rng.standard_normal((pairs, n, 2))
        halves = np.stack([off, -off], axis=1).reshape(2 * pairs, n, 2)
        aligned = Alignment(center, (center + halves + extra * rng.standard_normal(halves.shape),), (1.0,))
        regions = calibrated_regions(aligned, together=2)
        covered.append(regions.contains(np.zeros((n, 2)), 0.9).mean())
    assert 0.89 < np.mean(covered) < 0.97


def test_axes_are_those_of_the_covariance() -> None:
    """Rows are orthogonal, the longest first; their outer products add up to the covariance at radius 1."""
    rng = np.random.default_rng(4)
    places = np.einsum("nij,mnj->mni", rng.standard_normal((30, 2, 2)), rng.standard_normal((50, 30, 2)))
    regions = calibrated_regions(Alignment(np.zeros((30, 2)), (places,), (1.0,)))
    axes, off = regions.half_axes, places - places.mean(axis=0)
    np.testing.assert_allclose(np.einsum("nja,njb->nab", axes, axes), np.einsum("mna,mnb->nab", off, off) / 49)
    np.testing.assert_allclose(np.einsum("na,na->n", axes[:, 0], axes[:, 1]), 0, atol=1e-12)
    lengths = np.linalg.norm(axes, axis=2)
    assert (lengths[:, 0] >= lengths[:, 1]).all()
    for level in LEVELS:
        on_edge = regions.center + regions.axes(level)[:, 0] * (1 - 1e-9)
        assert regions.contains(on_edge, level).all()
        assert not regions.contains(regions.center + regions.axes(level)[:, 1] * (1 + 1e-9), level).any()
    assert regions.to_dict() == {"levels": list(LEVELS), "radii": list(regions.radii)}
    # Half of the deviations with the factor 4 give the same; a new place and the reference scatter alike.
    halved = Alignment(np.zeros((30, 2)), (places, places / 2), (1.0, 4.0))
    np.testing.assert_allclose(calibrated_regions(halved).axes(0.9), regions.axes(0.9), rtol=1e-9)
    assert regions.of_new_sample().radii == pytest.approx([np.sqrt(2) * radius for radius in regions.radii])
    with pytest.raises(InvalidParameterError, match=r"level=0.95 .*0.5, 0.9"):
        regions.axes(0.95)


def test_a_point_that_never_moves_has_itself_as_its_region() -> None:
    """No division by zero: any other place is outside."""
    places = np.random.default_rng(5).standard_normal((20, 6, 2))
    places[:, 0] = 0.0
    regions = calibrated_regions(Alignment(np.zeros((6, 2)), (places,), (1.0,)))
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
    """With ties too; the correlation of an array with itself is exactly 1, with its negative exactly -1."""
    a, b = np.array(pairs, float).T
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)
    assert rank_correlation(b, a) == rank_correlation(a, b)
    assert (rank_correlation(a, a), rank_correlation(a, -a)) == (1, -1)
    assert rank_correlation(a, np.ones(len(a))) == 0, "no order"


def test_kinds_are_weighted_by_their_factors() -> None:
    """The covariance is the mean of those of the kinds, each times its factor."""
    rng = np.random.default_rng(0)
    original = rng.standard_normal((30, 2))
    kinds = [original + 0.1 * rng.standard_normal((m, 30, 2)) for m in (9, 5)]
    aligned = Alignment.from_maps(kinds, original, (1.0, 3.0))
    first, second = ([np.cov(kind[:, i].T) for i in range(30)] for kind in aligned.kinds)
    np.testing.assert_allclose(aligned.covariance, (np.array(first) + 3 * np.array(second)) / 2)
    assert [len(kind) for kind in aligned.kinds] == [9, 5]
    seen: list[tuple[int, int, str]] = []
    found = aligned.split_half_correlations(lambda *report: seen.append(report))
    assert found == aligned.split_half_correlations()
    assert len(found) == 3, "together, and each kind"
    assert seen[-1] == (len(seen), len(seen), "reliability")


def test_refusals() -> None:
    """Other shapes and too few embeddings, with the kind."""
    original = np.zeros((30, 2))
    with pytest.raises(InvalidShapeError, match=r"kind 1 have shape \(4, 29, 2\).*\(30, 2\)"):
        Alignment.from_maps((np.zeros((4, 30, 2)), np.zeros((4, 29, 2))), original)
    with pytest.raises(InvalidShapeError, match=r"kind 0 have shape \(3, .*at least 4"):
        Alignment.from_maps((np.zeros((3, 30, 2)),), original)


rng = np.random.default_rng


def moving(sizes: NDArray[np.float64], count: int, kinds: int = 2, seed: int = 0) -> Alignment:
    """Return kinds of `count` normal embeddings in which point i has the standard deviation sizes[i]."""
    source = rng(seed)
    places = tuple(sizes[:, None] * source.standard_normal((count, len(sizes), 2)) for _ in range(kinds))
    return Alignment(np.zeros((len(sizes), 2)), places, (1.0,) * kinds)


@pytest.mark.parametrize(("state", "kinds"), [(spread_reliability, 2), (movement_reliability, 1)])
def test_points_that_differ_have_a_reliable_spread(state: Any, kinds: int) -> None:
    """The more embeddings, the more reliable; the reproducibility is that of 20, whatever their number."""
    sizes = np.exp(0.5 * rng(1).standard_normal(800))
    few, some, many = (state(moving(sizes, count, kinds)) for count in (6, 40, 400))
    assert few.reliability < some.reliability < many.reliability
    assert many.reliability > 0.98
    assert many.reproducibility == pytest.approx(some.reproducibility, abs=0.05)
    assert many.level == "high"
    for one in (few, some, many):
        assert one.ceiling == pytest.approx(np.sqrt(one.reliability))
        assert json.loads(json.dumps(one.to_dict(), allow_nan=False)) == one.to_dict()


def test_the_correction_foretells_the_correlation_of_two_sets() -> None:
    """Spearman and Brown: of two ensembles of the same size, and of two sets of twenty half-samples."""
    sizes = np.exp(0.3 * rng(2).standard_normal(2000))
    spreads = [
        np.sqrt(sum(kind.var(axis=0, ddof=1).sum(axis=1) for kind in moving(sizes, 12, seed=seed).kinds))
        for seed in (3, 4)
    ]
    found = spread_reliability(moving(sizes, 12, seed=3)).reliability
    assert found == pytest.approx(rank_correlation(*spreads), abs=0.05)
    twenty = [np.sqrt(moving(sizes, 20, 1, seed).kinds[0].var(axis=0, ddof=1).sum(axis=1)) for seed in (5, 6)]
    reproducible = movement_reliability(moving(sizes, 40, 1)).reproducibility
    assert reproducible == pytest.approx(rank_correlation(*twenty), abs=0.05)


def test_noise_and_a_constant_spread_have_no_order() -> None:
    """If all points move alike, nothing can be ranked, and the reason says so; a correlation with a constant is 0."""
    found = spread_reliability(moving(np.ones(2000), 40), saturated=True)
    assert found.reliability < 0.1
    assert abs(found.agreement) < 0.1
    assert found.level == "low"
    assert "saturated" in found.reason
    assert [note.code for note in found.notes] == ["spread-unreliable"]
    assert movement_reliability(moving(np.ones(100), 40, 1)).reason.startswith("Do not rank points")
    still = np.zeros((8, 30, 2))
    found = spread_reliability(Alignment(still[0], (still, rng(0).standard_normal((8, 30, 2))), (1.0, 1.0)))
    assert (found.agreement, found.expected, found.level) == (0.0, 0.0, "low")
    assert movement_reliability(Alignment(still[0], (still,), (1.0,))).level == "low"


@pytest.mark.parametrize(
    ("value", "level"),
    [
        (HIGH_CORRELATION + 0.01, "high"),
        (HIGH_CORRELATION - 0.01, "moderate"),
        (MODERATE_CORRELATION - 0.01, "low"),
        (0.0, "low"),
    ],
)
def test_the_word_follows_the_expected_correlation(value: float, level: str) -> None:
    """Each word has a reason with the figures; only low is a warning."""
    found = state_spread(0.95, 0.9, value**2 / 0.9)
    assert found.level == level == state_movement(0.95, value).level
    assert f"{value**2 / 0.9:.2f}" in found.reason
    assert "0.90" in found.reason
    assert bool(found.notes) == (level == "low")
    assert found.expected == pytest.approx(value)
    assert f"{value:.2f}" in state_movement(0.95, value).reason


def test_further_sentences() -> None:
    """Too few embeddings, disagreement, and a seed that explains most of the variance."""
    assert "would help" not in state_spread(0.95, 0.9, 0.9).reason + state_movement(0.95, 0.9).reason
    assert "More draws and resamples would help" in state_spread(0.5, 0.9, 0.9).reason
    assert "More half-samples would help" in state_movement(0.8, 0.9).reason
    assert (state_spread(0.99, 0.9, -0.5).expected, state_spread(0.99, 0.9, -0.5).level) == (0.0, "low")
    by_seed = state_movement(0.99, 0.95, 0.7)
    assert (by_seed.level, state_movement(0.5, 0.3, 0.7).level) == ("moderate", "low")
    assert "70% of the variance comes from the seed" in by_seed.reason
