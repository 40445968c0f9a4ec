"""What clients request, as values that determine each array of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine import manifolds
from tests.system.arrays import to_npy

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_POINTS, MAX_POINTS = 60, 300
LARGE = 20_000  # number of points of a data set whose fit takes many seconds

METHODS: dict[str, dict[str, Any]] = {
    "pca": {},
    "lle": {"n_neighbors": 8},
    "laplacian-eigenmaps": {"n_neighbors": 8},
}


@dataclass(frozen=True)
class Content:
    """A data set, by its number: points of an S-shaped sheet.

    A synthetic data set is made by the service. Other data sets are uploaded, and have a fourth column.
    """

    number: int
    is_synthetic: bool = False
    is_large: bool = False

    @property
    def n(self) -> int:
        """Number of points."""
        return LARGE if self.is_large else MIN_POINTS + self.number * 37 % (MAX_POINTS - MIN_POINTS + 1)

    @property
    def synthetic(self) -> dict[str, Any]:
        """Body of the request that makes a synthetic data set."""
        return {"name": "s_curve", "n": self.n, "noise": 0.02, "seed": self.number}

    def values(self) -> NDArray[np.float64]:
        """Return the points (n, d)."""
        sheet = manifolds.make("s_curve", self.n, noise=0.02, seed=self.number).X
        return sheet if self.is_synthetic else np.column_stack([sheet, np.sin(sheet[:, 0])])

    def npy(self) -> bytes:
        """Return the npy file to upload."""
        return to_npy(self.values())


@dataclass(frozen=True)
class Fit:
    """A posterior that is fitted to a data set."""

    content: Content
    n_neighbors: int


@dataclass(frozen=True)
class Draws:
    """The draws `first`, ..., `first` + `count` - 1 of a posterior; a single draw has no axis for the draws."""

    fit: Fit
    first: int
    count: int
    seed: int
    scale: float
    is_single: bool = False


@dataclass(frozen=True)
class Summary:
    """The summary of the first `count` draws of a posterior."""

    fit: Fit
    count: int
    seed: int


@dataclass(frozen=True)
class Embedding:
    """An embedding of a data set by one of `METHODS`."""

    content: Content
    method: str


Artifact = Content | Fit | Draws | Summary | Embedding


def dataset_of(artifact: Artifact) -> Content:
    """Return the data set that a request is about."""
    if isinstance(artifact, Content):
        return artifact
    if isinstance(artifact, Fit | Embedding):
        return artifact.content
    return artifact.fit.content


def fit_of(artifact: Artifact) -> Fit | None:
    """Return the posterior that a request is about, or None if it is about a data set or an embedding."""
    if isinstance(artifact, Draws | Summary):
        return artifact.fit
    return artifact if isinstance(artifact, Fit) else None
