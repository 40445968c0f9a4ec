"""Agreement of maps with the data: kept neighbors, folds, and distances, on data whose answers are known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine.audit.agreement import far_neighbors, measure_agreement, nearest_among, spaces_of
from glle_engine.audit.audit import audit
from glle_engine.audit.fidelity import Fidelity
from glle_engine.graph.neighbors import kneighbors
from glle_engine.reliability.thresholds import (
    FAR_RATIO_IN_DATA,
    MAX_GLUED_SHARE,
    MIN_DISTANCE_CORRELATION,
    MIN_KEPT,
    MIN_SHARE_NEAR_IN_DATA,
)
from tests.engine.conftest import principal


def rotated(points: NDArray[np.float64], d: int, noise: float, seed: int) -> NDArray[np.float64]:
    """Return points in d features, with noise."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0][: points.shape[1]]
    return np.asarray(points @ directions + noise * rng.standard_normal((len(points), d)))


def share_glued(points: NDArray[np.float64], Y: NDArray[np.float64], k: int = 15) -> NDArray[np.bool_]:
    """Return which points a map lays beside points that are far in the data."""
    near = kneighbors(np.ascontiguousarray(Y), k)[0]
    return np.asarray(far_neighbors(spaces_of(points), near, np.arange(len(Y)), k).mean(axis=1) > MAX_GLUED_SHARE)


def test_maps_of_noisy_columns_keep_neighbors_of_components() -> None:
    """In 400 columns of noise the distances hide the groups' neighbors, and ten components show them."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((200, 2))
    X = factors @ rng.standard_normal((2, 400)) * 0.35 + rng.standard_normal((200, 400))
    of_map = measure_agreement(X, principal(X), 15)
    in_columns = np.mean([len(set(a) & set(b)) / 15 for a, b in zip(
        kneighbors(X, 15)[0], kneighbors(np.ascontiguousarray(principal(X)), 15)[0], strict=True)])  # fmt: skip
    assert of_map.kept > in_columns + 0.05
    at_random = measure_agreement(X, rng.standard_normal((200, 2)), 15)
    assert at_random.kept - at_random.by_chance < MIN_KEPT + 0.01


def test_neighbors_of_two_sheets_in_one_place_are_not_trusted() -> None:
    """Half of the neighbors are of the other sheet in every sample: stable, and wrong."""
    rng = np.random.default_rng(1)
    sheet = np.where(np.arange(400) % 2 == 0, 0.6, 0.0)
    X = rotated(np.c_[rng.uniform(-0.8, 0.8, (400, 2)) * [1.3, 1], sheet], 6, 0.01, 1)
    audited = audit(X, method="pca")
    assert audited.neighborhoods is not None
    assert audited.neighborhoods.share > 0.5
    assert "neighbors" in audited.statement.distrusted
    assert "of its neighbors are near in the data" in audited.verdict
    near = measure_agreement(X, principal(X), 15).near
    assert 0.4 < near < MIN_SHARE_NEAR_IN_DATA


def test_folds_are_found_by_ranks_and_intact_sheets_are_not_folded() -> None:
    """A tube that PCA flattens is folded along its sides; sheets and wide groups lie beside their neighbors."""
    rng = np.random.default_rng(2)
    angle, height, plane = rng.uniform(0, 2 * np.pi, 300), rng.uniform(0, 6, 300), rng.uniform(-1, 1, (300, 2))
    tube = rotated(np.c_[np.cos(angle), np.sin(angle), height], 6, 0.03, 2)
    assert share_glued(tube, principal(tube)).mean() > 0.25
    for d, noise in ((6, 0.05), (10, 0.15), (60, 0.1)):
        sheet = rotated(plane * [2, 1], d, noise, 3)
        assert not share_glued(sheet, principal(sheet)).any()
    groups = 1.5 * rng.standard_normal((3, 40))[np.arange(300) % 3] + rng.standard_normal((300, 40))
    assert share_glued(groups, principal(groups)).mean() < 0.01, "points of a group are about equally far"


def test_wide_noise_hides_no_distances() -> None:
    """Distances count in ten components, too, because noise in many columns makes all distances alike."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((150, 2)) @ rng.standard_normal((2, 600)) * 0.2 + rng.standard_normal((150, 600))
    of_map = measure_agreement(X, principal(X), 15)
    in_columns = Fidelity.from_points(X).layout(principal(X))
    assert of_map.straight > in_columns[0]
    assert max(of_map.straight, of_map.along) > MIN_DISTANCE_CORRELATION


def test_a_layout_that_follows_no_distances_is_not_trusted() -> None:
    """A map that repeats itself in every sample but has neither kind of distances is stable and wrong."""
    rng = np.random.default_rng(4)
    X = np.c_[rng.uniform(-1, 1, (400, 2)), 0.02 * rng.standard_normal((400, 3))]
    X[:, 3] += 0.5 * X[:, 0]
    audited = audit(X, method=lambda part: np.cos(4 * part[:, :2]) * [2, 1])
    assert audited.remains is not None
    assert audited.remains > 0.6
    assert (audited.level, audited.statement.trusted) == ("no", ())
    assert "rank neither like straight distances" in audited.verdict


@pytest.mark.parametrize("count", [200, 300])
def test_far_neighbors_are_those_of_the_definition(count: int) -> None:
    """Also among a sample of rows; with a least share, points at or below it are left out, and no other."""
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.standard_normal((150, 12)), 4 + rng.standard_normal((150, 12))])
    Y, k = rng.standard_normal((300, 2)) + np.repeat([0, 1], 150)[:, None], 6
    rows = np.sort(rng.permutation(300)[:count])
    near = nearest_among(Y, rows, k)[0]
    expected = np.ones(near.shape, bool)
    for space in spaces_of(points):
        in_data, distances = nearest_among(space, rows, 3 * k)
        is_near = (in_data[:, None, :] == near[:, :, None]).any(axis=2)
        is_near |= (in_data[near] == np.arange(300)[:, None, None]).any(axis=2)
        limit = distances[:, k - 1]
        apart = np.linalg.norm(space[:, None] - space[near], axis=2)
        expected &= ~is_near & (apart > FAR_RATIO_IN_DATA * np.maximum(limit[:, None], limit[near]))
    np.testing.assert_array_equal(far_neighbors(spaces_of(points), near, rows, k), expected)
    is_glued = expected.mean(axis=1) > MAX_GLUED_SHARE
    assert 0 < is_glued.sum() < 300
    glued = far_neighbors(spaces_of(points), near, rows, k, least=MAX_GLUED_SHARE)
    np.testing.assert_array_equal(glued, expected & is_glued[:, None])
