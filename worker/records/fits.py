"""Recorded parameters of a posterior: those of the engine's `FitSpec`, and the data set of given neighbors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glle_engine.base.spec import FitSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

NEIGHBORS = "neighbors"
"""Member with the id of a data set of neighbors; absent if the fit searches them, so that other ids stay."""


def recorded(spec: FitSpec, neighbors: str | None) -> dict[str, Any]:
    """Return the parameters of a record and of a posterior's id."""
    return spec.to_dict() if neighbors is None else {**spec.to_dict(), NEIGHBORS: neighbors}


def spec_of(parameters: Mapping[str, Any]) -> FitSpec:
    """Return the engine's specification of recorded parameters."""
    return FitSpec.from_dict({name: value for name, value in parameters.items() if name != NEIGHBORS})


def neighbors_of(parameters: Mapping[str, Any]) -> str | None:
    """Return the id of the data set of given neighbors, or None."""
    return parameters.get(NEIGHBORS)
