"""Parameters common to all methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glle_engine.base.parameters import Parameter, boolean, choice, indices, integer, number
from glle_engine.base.spec import Metric, SpaceSpec, Standardize, measured, standardized

__all__ = [
    "DistanceSpec",
    "MethodSpec",
    "NeighborSpec",
    "Parameter",
    "boolean",
    "choice",
    "indices",
    "integer",
    "number",
]


@dataclass(frozen=True, kw_only=True)
class MethodSpec(SpaceSpec):
    """Parameters common to all methods; a method with more has a subclass."""

    together: ClassVar[str] = ""  # constraints between the parameters of a subclass

    n_components: int = integer(2, "p, the dimension of the embedding.", least=1)


@dataclass(frozen=True, kw_only=True)
class DistanceSpec(MethodSpec):
    """Parameters of a method on distances between points."""

    standardize: Standardize = standardized()
    metric: Metric = measured()


@dataclass(frozen=True, kw_only=True)
class NeighborSpec(DistanceSpec):
    """Parameters of a method on nearest neighbors."""

    n_neighbors: int = integer(10, "k, the number of neighbours of a point.", least=2)
