"""Parameters of the methods on nearest neighbors."""

from __future__ import annotations

from dataclasses import dataclass

from glle_engine.methods.parameters import MethodSpec, integer


@dataclass(frozen=True, kw_only=True)
class NeighborSpec(MethodSpec):
    """The parameters of a method on neighbourhoods."""

    n_neighbors: int = integer(10, "k, the number of neighbours of a point.", least=2)
