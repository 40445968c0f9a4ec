"""What holds for every map from new points to places, of a method or of a posterior."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import fit
from glle_engine.base.errors import OutOfRangeError
from glle_engine.methods import METHODS, Embedding
from glle_engine.methods.maps import NeighborMap
from glle_engine.methods.registry import MAPPED
from tests.engine.conftest import bent_sheet
from tests.engine.methods.reference import LIBRARIES, import_or_skip

Array = NDArray[np.float64]

# A sheet and a few points far beside it: the middle of no embedding's box is its mean.
X = np.concatenate([bent_sheet(130), bent_sheet(8, seed=4) / 4 + [60.0, 10.0, 20.0]])
NEW = bent_sheet(90, seed=9) + 0.3 * np.random.default_rng(0).standard_normal((90, 3))
DIRECTION = np.array([0.2, -1.0, 0.6])
METHOD_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "kernel-pca": [{}, {"kernel": "polynomial"}, {"kernel": "cosine"}, {"kernel": "linear"}],
    "lle": [{}, {"metric": "cosine"}, {"standardize": "zscore"}],
    "isomap": [{}, {"landmarks": 30}],
    "t-sne": [{"early_iter": 50, "max_iter": 200}],
}
POSTERIORS: list[dict[str, Any]] = [
    {},
    {"method": "direct"},
    {"variant": "published"},
    {"variant": "published", "method": "direct"},
    {"noise": "tangent"},
    {"neighborhoods": "adaptive"},
    {"metric": "cosine"},
    {"standardize": "zscore"},
    {"landmarks": 100},
]


@dataclass(frozen=True)
class Case:
    """A method that has a map, or "posterior", with its options."""

    name: str
    options: dict[str, Any]

    @property
    def origin_matters(self) -> bool:
        """Whether moved data have another embedding."""
        return "cosine" in self.options.values() or "polynomial" in self.options.values()

    @property
    def moves_rows(self) -> bool:
        """Whether the order of the rows does not matter: landmarks and umap-learn's random pairs are drawn by it."""
        return "landmarks" not in self.options and self.name != "umap"


CASES = [Case(name, options) for name in MAPPED for options in METHOD_OPTIONS.get(name, [{}])]
CASES += [Case("posterior", options) for options in POSTERIORS]
PARAMETERS = [pytest.param(case, marks=[pytest.mark.slow] * (case.name in LIBRARIES), id=str(case)) for case in CASES]


@dataclass(frozen=True)
class FittedMap:
    """An embedding (n, p) of data, and the function from new points to positions in it."""

    Y: Array
    transform: Callable[[Array], Array]
    embedding: Embedding | None = None


def neighbor_map(case: Case, data: Array, embedding: Embedding) -> NeighborMap:
    """Return a method's map of new points to an embedding of the data, which may be by another method."""
    one = METHODS[case.name]
    assert one.neighbor_map is not None
    return one.neighbor_map(data, one.spec(**case.options), embedding)


def fit_map(case: Case, data: Array) -> FittedMap:
    """Embed data and return the map; methods whose library compiles slowly place points in a map by PCA."""
    if case.name == "posterior":
        posterior = fit(data, **case.options)
        return FittedMap(posterior.embedding, lambda new: posterior.transform(data, new))
    one = METHODS[case.name]
    spec = one.spec(**case.options)
    if case.name in LIBRARIES:
        import_or_skip(LIBRARIES[case.name])
        Y = METHODS["pca"].embed(data).Y
        Y = 5 * Y / Y.std()  # these libraries have one scale of all maps
        return FittedMap(Y, neighbor_map(case, data, Embedding(Y)).transform)
    embedding = one.embed(data, spec)
    return FittedMap(embedding.Y, embedding.transform, embedding)


@pytest.fixture(scope="module", params=PARAMETERS)
def case(request: pytest.FixtureRequest) -> Case:
    """Return a method that has a map, or a posterior, with its options."""
    each: Case = request.param
    return each


@pytest.fixture(scope="module")
def fitted(case: Case) -> FittedMap:
    """Return the map of the data X, which all tests of a case share."""
    return fit_map(case, X)


def fit_moved(
    case: Case, before: FittedMap, change: Callable[[Array], Array], rows: NDArray[np.intp]
) -> Callable[[Array], Array]:
    """Return the map of changed and reordered data, whose positions are those in the embedding of the data before.

    Rounding may change a descent, so that maps by neighbors get the embedding of the unchanged data.
    """
    data = change(X)[rows]
    if before.embedding is not None and METHODS[case.name].neighbor_map:
        again = neighbor_map(case, data, replace(before.embedding, embedding=before.Y[rows]))
        return lambda new: again.transform(change(new))
    after = fit_map(case, data)
    center, unit = after.Y.mean(axis=0), np.abs(after.Y).max()
    design = np.column_stack([(after.Y - center) / unit, np.ones(len(X))])
    linear, *_ = np.linalg.lstsq(design, before.Y[rows], rcond=None)
    np.testing.assert_allclose(design @ linear, before.Y[rows], atol=1e-6 * np.ptp(before.Y))
    return lambda new: (after.transform(change(new)) - center) / unit @ linear[:-1] + linear[-1]


def turn(data: Array) -> Array:
    """Rotate data by right angles, which is exact."""
    return data[:, [2, 0, 1]] * [1.0, -1.0, -1.0]


def order_of(case: Case) -> NDArray[np.intp]:
    """Return the rows in another order, in which the first stays, because Isomap's landmarks start there."""
    if not case.moves_rows:
        return np.arange(len(X))
    return np.concatenate([[0], 1 + np.random.default_rng(1).permutation(len(X) - 1)])


def test_copies_of_training_rows_land_at_their_rows(fitted: FittedMap) -> None:
    """Training points get exactly their rows of the embedding, and points close to them land close by."""
    extent = np.ptp(fitted.Y, axis=0).max()
    np.testing.assert_allclose(fitted.transform(X[::-1]), fitted.Y[::-1], atol=1e-9 * extent)
    near = fitted.transform(X + 1e-7 * np.random.default_rng(2).standard_normal(X.shape))
    assert np.median(np.linalg.norm(near - fitted.Y, axis=1)) < 0.02 * extent


def test_moved_and_rotated_data_have_moved_places(case: Case, fitted: FittedMap) -> None:
    """Reordering, rotating and moving the data does not change the positions of new points."""
    shift = 0.0 if case.origin_matters else np.array([200.0, -70.0, 1000.0])

    def change(data: Array) -> Array:
        return turn(data) + shift

    places = fit_moved(case, fitted, change, order_of(case))(NEW)
    np.testing.assert_allclose(places, fitted.transform(NEW), atol=1e-6 * np.ptp(fitted.Y))


@pytest.mark.parametrize("unit", [2.0**-330, 2.0**330])
def test_the_unit_of_the_data_does_not_matter(case: Case, fitted: FittedMap, unit: float) -> None:
    """New points have the same positions in units in which squares of coordinates overflow or underflow."""
    scaled = fit_map(case, X * unit)
    size = np.ptp(scaled.Y) / np.ptp(fitted.Y)
    np.testing.assert_allclose(
        scaled.transform(NEW * unit) / size, fitted.transform(NEW), rtol=0, atol=1e-9 * np.ptp(fitted.Y)
    )


def test_far_points_are_right_or_refused(case: Case, fitted: FittedMap) -> None:
    """Points a million extents away are placed correctly; still farther ones are placed correctly or refused."""
    again = fit_moved(case, fitted, turn, order_of(case))
    for far in (1e6, 1e9, 1e13, 1e20, 1e50, 1e100, 1e160, 1e300):
        points = np.concatenate([NEW[:3], [far * DIRECTION]])
        try:
            places = fitted.transform(points)
        except OutOfRangeError as refused:
            assert far > 1e6  # a refusal is one of two right answers
            assert refused.remedy  # noqa: PT017
            continue
        turned, extent = again(points), np.ptp(fitted.Y)
        np.testing.assert_allclose(turned[:3], places[:3], atol=1e-6 * extent, err_msg=str(far))
        tolerance = 1e-5 * max(extent, np.abs(places[3]).max())
        np.testing.assert_allclose(turned[3], places[3], atol=tolerance, err_msg=str(far))


def test_order_and_size_of_the_batch_change_nothing(fitted: FittedMap) -> None:
    """The position of a point does not depend on the other points of the call, nor on their order."""
    places, tolerance = fitted.transform(NEW), 1e-12 * np.ptp(fitted.Y)
    np.testing.assert_allclose(fitted.transform(NEW[::-1])[::-1], places, rtol=0, atol=tolerance)
    np.testing.assert_allclose(fitted.transform(np.tile(NEW, (3, 1)))[90:180], places, rtol=0, atol=tolerance)
    beside = fitted.transform(np.concatenate([NEW, [1e6 * DIRECTION]]))
    np.testing.assert_allclose(beside[:-1], places, rtol=0, atol=tolerance)
    alone = np.concatenate([fitted.transform(point[None]) for point in NEW[:10]])
    np.testing.assert_allclose(alone, places[:10], rtol=0, atol=tolerance)
