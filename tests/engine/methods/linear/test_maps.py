"""Maps from new points to an embedding: of PCA, PPCA, kernel PCA and NPE."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA, KernelPCA

from glle_engine import manifolds
from glle_engine.base import maps
from glle_engine.base.errors import (
    DegenerateDataError,
    GlleError,
    InvalidParameterError,
    InvalidShapeError,
    NotFiniteError,
    OutOfRangeError,
)
from glle_engine.methods import METHODS, Embedding, method
from glle_engine.methods.base import MAPPED
from tests.engine.methods.linear.factors import correlated

CASES: list[tuple[str, dict[str, object]]] = [
    ("pca", {}),
    ("ppca", {}),
    ("npe", {}),
    ("npe", {"variance": 0.9}),
    ("npe", {"standardize": "zscore"}),
    ("npe", {"standardize": "robust", "variance": 0.9}),
    ("kernel-pca", {"kernel": "rbf"}),
    ("kernel-pca", {"kernel": "cosine"}),
    ("kernel-pca", {"kernel": "linear"}),
    ("kernel-pca", {"kernel": "polynomial", "gamma": 0.5, "degree": 2, "offset": 2.0}),
]
DATA = {
    "sheet": manifolds.make("s_curve", 150, seed=1).X,
    "tall": correlated(120, 6),
    "wide": correlated(40, 90),
    "far": correlated(120, 6) * 1e-3 + 1e3,
}


def embedded(name: str, X: np.ndarray[Any, Any], **options: object) -> Embedding:
    """Embed by a method."""
    one = method(name)
    return one.embed(X, one.spec(**options))


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{name} {options}" for name, options in CASES])
@pytest.mark.parametrize("data", DATA)
def test_training_points_get_their_places(name: str, options: dict[str, object], data: str) -> None:
    """The map reproduces the embedding to 1e-8 of its extent, all points at once and one alone."""
    if data == "far" and options.get("kernel") in {"cosine", "polynomial"}:
        pytest.skip("these kernels depend on the origin: far from it their differences are rounding")
    X = DATA[data]
    found = embedded(name, X, **options)
    extent = np.abs(found.Y).max()
    np.testing.assert_allclose(found.transform(X), found.Y, rtol=0, atol=1e-8 * extent)
    np.testing.assert_allclose(found.transform(X[7:8]), found.Y[7:8], rtol=0, atol=1e-8 * extent)


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{name} {options}" for name, options in CASES])
def test_a_stored_map_is_the_map(name: str, options: dict[str, object]) -> None:
    """The arrays of a map, with data and embedding, give the map again."""
    X, new = DATA["tall"], correlated(9, 6) + 0.1
    one = method(name)
    spec = one.spec(**options)
    found = one.embed(X, spec)
    assert found.map is not None
    assert one.restore is not None
    again = one.restore(lambda: X, spec, Embedding(found.Y, found.eigenvalues, found.figures), found.map.arrays)
    np.testing.assert_allclose(again.transform(new), found.transform(new), rtol=1e-12, atol=1e-12)
    assert again.arrays.keys() == found.map.arrays.keys()


def test_new_points_are_placed_as_by_scikit_learn() -> None:
    """PCA's and kernel PCA's projections, up to signs."""
    X, new = correlated(100, 5), correlated(20, 5) + 0.3
    for name, options, other in (
        ("pca", {}, PCA(2)),
        ("kernel-pca", {"gamma": 0.3}, KernelPCA(2, kernel="rbf", gamma=0.3, eigen_solver="dense")),
        ("kernel-pca", {"kernel": "cosine"}, KernelPCA(2, kernel="cosine", eigen_solver="dense")),
    ):
        expected = other.fit(X).transform(new)
        np.testing.assert_allclose(np.abs(embedded(name, X, **options).transform(new)), np.abs(expected), atol=1e-8)


@pytest.mark.parametrize("name", ["pca", "ppca", "npe"])
def test_affine_maps_have_mean_and_components(name: str) -> None:
    """Shapes (d,) and (p, d); the place of a point is the components times its difference from the mean."""
    X, x = DATA["tall"], correlated(1, 6)
    found = embedded(name, X, n_components=3)
    assert isinstance(found.map, maps.AffineMap)
    assert (found.map.mean.shape, found.map.components.shape) == ((6,), (3, 6))
    np.testing.assert_allclose(found.map.mean, X.mean(axis=0))
    np.testing.assert_allclose(found.transform(x)[0], found.map.components @ (x[0] - found.map.mean))
    np.testing.assert_allclose(found.transform(found.map.mean[None]), 0, atol=1e-12)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40), rows=st.integers(1, 7))
def test_blocks_do_not_matter(seed: int, size: int, rows: int) -> None:
    """A place depends on its point alone, and every block is reported."""
    X, new = DATA["tall"], correlated(size, 6) + seed % 7
    found = embedded("kernel-pca", X, gamma=0.1)
    reports: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(maps, "_BLOCK_ENTRIES", rows * len(X))
        places = found.transform(new, lambda done, total, _stage: reports.append((done, total)))
    np.testing.assert_allclose(places, found.transform(new), rtol=1e-9, atol=1e-12)
    assert reports[-1] == (size, size)
    assert len(reports) == -(-size // rows)


def test_a_map_that_magnifies_rounding_is_noted() -> None:
    """NPE on axes 1e-13 as wide as the first reproduces fewer digits, and says so; with less variance it does not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4)) * [1.0, 1.0, 1.0, 1e-13]
    X = X @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
    found = embedded("npe", X)
    error = np.abs(found.transform(X) - found.Y).max() / np.abs(found.Y).max()
    assert ("ill-conditioned-map" in {note.code for note in found.notes}) == (error > 1e-8)
    assert error > 1e-8
    assert embedded("npe", X, variance=0.999999).notes == ()


def test_methods_without_a_map_name_those_that_have_one() -> None:
    """The refusal is the same for an embedding of any other method; the list is that of the registry."""
    assert tuple(name for name, one in METHODS.items() if one.restore is not None) == MAPPED
    found = embedded("lle", DATA["sheet"])
    with pytest.raises(InvalidParameterError, match="no map to new points") as caught:
        found.transform(DATA["sheet"])
    assert all(name in caught.value.remedy for name in MAPPED)
    assert caught.value.details == {"methods": list(MAPPED)}


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        (np.ones((3, 5)), InvalidShapeError, "Give a matrix of 6 columns"),
        (np.ones(6), InvalidShapeError, "shape"),
        (np.full((1, 6), np.nan), NotFiniteError, "is nan"),
        (np.full((1, 6), 1e308), OutOfRangeError, "unit of the training data"),
    ],
)
def test_bad_new_points_are_refused(points: np.ndarray[Any, Any], error: type[GlleError], message: str) -> None:
    """Another width, NaN, and places out of range."""
    found = embedded("pca", DATA["tall"] * 1e-9)
    spread = maps.AffineMap(np.zeros(6), np.full((2, 6), 10.0))
    with pytest.raises(error, match=message):
        (spread if error is OutOfRangeError else found).transform(points)


def test_a_new_point_without_direction_is_refused() -> None:
    """The cosine kernel has no value at 0."""
    found = embedded("kernel-pca", DATA["tall"], kernel="cosine")
    with pytest.raises(DegenerateDataError, match="no direction"):
        found.transform(np.zeros((1, 6)))
