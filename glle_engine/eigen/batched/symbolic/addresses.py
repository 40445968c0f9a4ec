"""Addresses of a structure's arrays, which kernels pass without reference counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.vectors import address

if TYPE_CHECKING:
    from glle_engine.eigen.batched.symbolic.structure import Structure


class Addresses(NamedTuple):
    """Addresses of the arrays of a `glle_engine.eigen.batched.symbolic.structure.Structure`, by the same names."""

    nodes: int
    first: Any
    row_start: Any
    rows: Any
    parent: Any
    fronts: int
    front: Any
    place_start: Any
    place: Any
    child: Any
    sibling: Any
    visits: Any
    lower_start: Any
    upper_start: Any
    heir: Any
    block_start: Any
    block_stride: Any
    entry_start: Any
    entry_source: Any
    entry_target: Any


@compiled
def addresses(structure: Structure) -> Addresses:
    """Return the addresses of a structure's arrays, valid as long as the structure lives."""
    return Addresses(
        len(structure.first) - 1,
        address(structure.first),
        address(structure.row_start),
        address(structure.rows),
        address(structure.parent),
        len(structure.front) - 1,
        address(structure.front),
        address(structure.place_start),
        address(structure.place),
        address(structure.child),
        address(structure.sibling),
        address(structure.visits),
        address(structure.lower_start),
        address(structure.upper_start),
        address(structure.heir),
        address(structure.block_start),
        address(structure.block_stride),
        address(structure.entry_start),
        address(structure.entry_source),
        address(structure.entry_target),
    )
