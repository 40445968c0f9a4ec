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
from glle_engine.base.progress import OnProgress, blocks, silent
from glle_engine.base.space import Space
from glle_engine.base.validation import finite_matrix, require_near
from glle_engine.graph.neighbors import kneighbors_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

_BLOCK_ENTRIES = 1 << 20


def no_inverse(subject: str) -> InvalidParameterError:
    """Return the error for positions that cannot be mapped back to data."""
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
        """The arrays by name from which `Method.restore`, given the data and the embedding, rebuilds the map."""

    @abstractmethod
    def _place(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions (m, p) of a block of points (m, d)."""

    def inverse(self, places: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
        """Return points (m, d) that the map would place at `places` (m, p).

        Raises `InvalidParameterError` unless a subclass has an inverse.
        """
        raise no_inverse("The map by nearest neighbors")

    def _row_entries(self) -> int:
        """Return how many numbers `_place` holds in memory for each point."""
        return self.n_features

    def transform(self, points: ArrayLike, on_progress: OnProgress = silent) -> NDArray[np.float64]:
        """Return the positions (m, p) of points (m, d), which are in the unit of the training data.

        Raises
        ------
        InvalidShapeError
            For another number of features.
        NotFiniteError
        OutOfRangeError
            If a position leaves the range of floating-point numbers, or a point is too far from the data to have
            nearest neighbors.

        """
        data = self._check(points)
        rows = max(1, _BLOCK_ENTRIES // self._row_entries())
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
        """Return new points as a matrix (m, d), or raise an error if the map cannot place them."""
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
    """Affine map y = C (x - m).

    Attributes
    ----------
    mean : (d,) float64
    components : (p, d) float64
        A row for each coordinate of the embedding.

    """

    mean: NDArray[np.float64]
    components: NDArray[np.float64]

    @property
    def n_features(self) -> int:
        """The number of features of a point, d."""
        return len(self.mean)

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Mean and components."""
        return {"mean": self.mean, "components": self.components}

    @classmethod
    def restore(cls, _data: object, _spec: object, _embedding: object, arrays: dict[str, NDArray[np.float64]]) -> Self:
        """Return the map with these `arrays`, for `glle_engine.methods.base.Method.restore`."""
        return cls(**arrays)

    def _place(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((points - self.mean) @ self.components.T)

    def inverse(self, places: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
        """Return m + C^+ y: of all points that the map places at y, the one nearest to the mean."""
        return np.asarray(self.mean + places @ np.linalg.pinv(self.components).T)


@dataclass(frozen=True, eq=False)
class NeighborMap(Map):
    """Map that places a point by its neighbors in the data; points of the data get their rows of the embedding.

    Attributes
    ----------
    data : (n, d) float64
    spec
        Parameters of the method.
    embedding
        The embedding of the data.

    """

    data: NDArray[np.float64]
    spec: Any
    embedding: Any

    @classmethod
    def restore(cls, data: Callable[[], NDArray[np.float64]], spec: Any, embedding: Any, _arrays: object) -> Self:
        """Return the map of an embedding of the data, for `glle_engine.methods.base.Method.restore`."""
        return cls(data(), spec, embedding)

    @abstractmethod
    def _among(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions (m, p) of new points (m, q), whose coordinates are in the space of the method."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what was computed from them is computed again, and models of libraries stay here."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def n_features(self) -> int:
        """The number of features of a point, d."""
        return int(self.data.shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """No arrays: data and embedding determine the map."""
        return {}

    @cached_property
    def space(self) -> Space:
        """The space in which the method measures distances, after `standardize` and `metric`."""
        return Space.from_data(self.data, self.spec)

    @cached_property
    def points(self) -> NDArray[np.float64]:
        """The data (n, q) in the space of the method."""
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
