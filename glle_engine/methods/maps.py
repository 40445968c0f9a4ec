"""Maps of methods: functions from new points to positions in an embedding.

An affine map is y = C (x - m), with a mean m (d,) and components C (p, d). Kernel PCA has another map
(`glle_engine.methods.linear.scaling`). Methods on neighbors place a point by its nearest points of the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError, OutOfRangeError
from glle_engine.base.progress import OnProgress, block_size, blocks, silent
from glle_engine.base.space import Space
from glle_engine.base.validation import finite_matrix, require_near
from glle_engine.graph.neighbors import kneighbors_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray


def no_inverse(subject: str) -> InvalidParameterError:
    """Return the error to raise if positions cannot be mapped back to data; `subject` is the subject of its message."""
    return InvalidParameterError(
        f"{subject} has no inverse.",
        remedy="Embed by pca, ppca, factor-analysis, npe, kernel-pca or umap, which map positions back to the data.",
    )


class Map(ABC):
    """Function from points (m, d) to their positions (m, p) in an embedding, each point independently of the others."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The number of features of a point, d."""

    @property
    @abstractmethod
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays to store, by name; `Method.restore` rebuilds the map from them, the data and the embedding."""

    @abstractmethod
    def _place(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions (m, p) of a block of points (m, d)."""

    def inverse(self, places: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
        """Return points (m, d) that the map would place at the positions `places` (m, p).

        Maps that can do this override the method; here it raises `InvalidParameterError`. `ridge` is the ridge of maps
        that compute the points by a regression, as kernel PCA does.
        """
        raise no_inverse("The map by nearest neighbors")

    def _row_entries(self) -> int:
        """Return how many numbers `_place` holds in memory for each point; `transform` chooses blocks by it."""
        return self.n_features

    def transform(self, points: ArrayLike, on_progress: OnProgress = silent) -> NDArray[np.float64]:
        """Return the positions (m, p) of points (m, d), which are in the unit of the training data.

        Raises
        ------
        InvalidShapeError
            If the points have another number of features than the training data.
        NotFiniteError
            If a coordinate is infinite or NaN.
        OutOfRangeError
            If a position leaves the range of floating-point numbers, or a point is too far from the data to have
            nearest neighbors.

        """
        data = self._check(points)
        rows = block_size(self._row_entries())
        with np.errstate(over="ignore", invalid="ignore"):
            positions = [self._place(data[block]) for block in blocks(len(data), rows, "transform", on_progress)]
        Y = np.concatenate(positions)
        if not np.isfinite(Y).all():
            raise OutOfRangeError(
                "The positions of the new points in the map exceed the range of floating-point numbers.",
                remedy="Give the new points in the unit of the training data.",
            )
        return Y

    def _check(self, points: ArrayLike) -> NDArray[np.float64]:
        """Check that the map can place new points, and return them as a matrix (m, d).

        Raises the errors that the docstring of `transform` lists.
        """
        data = finite_matrix(points, "points")
        if data.shape[1] != self.n_features:
            raise InvalidShapeError(
                f"The new points have shape {data.shape}; the training data have {self.n_features} features.",
                remedy=f"Give a matrix of {self.n_features} columns.",
                details={"shape": list(data.shape), "features": self.n_features},
            )
        return data


@dataclass(frozen=True, eq=False)
class AffineMap(Map):
    """Affine map y = C (x - m) from points x to positions y.

    Attributes
    ----------
    mean : (d,) float64
        m, which is placed at 0.
    components : (p, d) float64
        C, with a row for each coordinate of the embedding.

    """

    mean: NDArray[np.float64]
    components: NDArray[np.float64]

    @property
    def n_features(self) -> int:
        """The number of features of a point, d."""
        return len(self.mean)

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays to store, by name: mean and components."""
        return {"mean": self.mean, "components": self.components}

    @classmethod
    def restore(cls, _data: object, _spec: object, _embedding: object, arrays: dict[str, NDArray[np.float64]]) -> Self:
        """Rebuild the map from its stored `arrays`; the signature is that of `Method.restore`."""
        return cls(**arrays)

    def _place(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((points - self.mean) @ self.components.T)

    def inverse(self, places: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
        """Return a point (d,) that the map places at y, for each position y in `places` (m, p).

        Of all such points, it is the one nearest to the mean m: m + C^+ y, with the pseudo-inverse of `components`.
        `ridge` has no effect.
        """
        return np.asarray(self.mean + places @ np.linalg.pinv(self.components).T)


@dataclass(frozen=True, eq=False)
class NeighborMap(Map):
    """Map that places a new point by its nearest points in the data; a point of the data gets its row of the embedding.

    Attributes
    ----------
    data : (n, d) float64
        The training data, before `standardize` and `metric`.
    spec : MethodSpec
        Parameters of the method.
    embedding : Embedding
        The embedding of the training data.

    """

    data: NDArray[np.float64]
    spec: Any
    embedding: Any

    @classmethod
    def restore(cls, data: Callable[[], NDArray[np.float64]], spec: Any, embedding: Any, _arrays: object) -> Self:
        """Rebuild the map from the data and the embedding; the signature is that of `Method.restore`."""
        return cls(data(), spec, embedding)

    @abstractmethod
    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions (m, p) of new points (m, q), none of which equals a training point.

        The coordinates of the new points are those after `standardize` and `metric`.
        """

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields only; cached properties, such as fitted models of libraries, are computed again on use."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def n_features(self) -> int:
        """The number of features of a point, d."""
        return int(self.data.shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays to store: none, because data and embedding determine the map."""
        return {}

    @cached_property
    def space(self) -> Space:
        """The transformation of raw data by `standardize` and `metric`, fitted to the training data."""
        return Space.from_data(self.data, self.spec)

    @cached_property
    def points(self) -> NDArray[np.float64]:
        """The training data (n, q) after `standardize` and `metric`."""
        return np.ascontiguousarray(self.space.points(self.data))

    def _row_entries(self) -> int:
        return int(max(self.data.shape))

    def _check(self, points: ArrayLike) -> NDArray[np.float64]:
        data = super()._check(points)
        require_near(self.points, self.space.points(data))
        return data

    def _place(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        located = np.ascontiguousarray(self.space.points(points))
        nearest, distances = kneighbors_to(self.points, located, 1)
        is_new = distances[:, 0] > 0
        places = np.array(self.embedding.Y[nearest[:, 0]])
        if is_new.any():
            places[is_new] = self._among(located[is_new])
        return places
