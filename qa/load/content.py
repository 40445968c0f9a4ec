"""Contents that clients request, as values that determine every array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine import manifolds
from tests.system.arrays import to_npy

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_POINTS, MAX_POINTS = 60, 300  # points
LARGE = 20_000  # points of a data set whose fit is no short task

METHODS: dict[str, dict[str, Any]] = {
    "pca": {},
    "lle": {"n_neighbors": 8},
    "laplacian-eigenmaps": {"n_neighbors": 8},
}


@dataclass(frozen=True)
class Content:
    """A data set by its number; an uploaded one has a fourth column, a synthetic one is the sheet itself."""

    number: int
    is_synthetic: bool = False
    is_large: bool = False

    @property
    def n(self) -> int:
        """Number of points."""
        return LARGE if self.is_large else MIN_POINTS + self.number * 37 % (MAX_POINTS - MIN_POINTS + 1)

    @property
    def synthetic(self) -> dict[str, Any]:
        """Request body of a synthetic one."""
        return {"name": "s_curve", "n": self.n, "noise": 0.02, "seed": self.number}

    def values(self) -> NDArray[np.float64]:
        """Return the points (n, d)."""
        sheet = manifolds.make("s_curve", self.n, noise=0.02, seed=self.number).X
        return sheet if self.is_synthetic else np.column_stack([sheet, np.sin(sheet[:, 0])])

    def npy(self) -> bytes:
        """Return the body of an upload."""
        return to_npy(self.values())


@dataclass(frozen=True)
class Fit:
    """A posterior of a data set."""

    content: Content
    n_neighbors: int


@dataclass(frozen=True)
class Draws:
    """Draws first, ..., first + count - 1 of a posterior; a single one is an array without the first axis."""

    fit: Fit
    first: int
    count: int
    seed: int
    scale: float
    is_single: bool = False


@dataclass(frozen=True)
class Summary:
    """The summary of the first draws of a posterior."""

    fit: Fit
    count: int
    seed: int


@dataclass(frozen=True)
class Embedding:
    """An embedding of a data set by one of `METHODS`."""

    content: Content
    method: str


Artifact = Content | Fit | Draws | Summary | Embedding
Kind = Literal["dataset", "posterior", "embedding"]


def dataset_of(artifact: Artifact) -> Content:
    """Return the data set of a content."""
    if isinstance(artifact, Content):
        return artifact
    if isinstance(artifact, Fit | Embedding):
        return artifact.content
    return artifact.fit.content


def fit_of(artifact: Artifact) -> Fit | None:
    """Return the posterior of a content, or None."""
    if isinstance(artifact, Draws | Summary):
        return artifact.fit
    return artifact if isinstance(artifact, Fit) else None
