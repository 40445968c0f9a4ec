"""Models with the fields of result types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np  # noqa: TC002 # the hints are read
from pydantic import BaseModel, Field

from service.schemas.derived import arrays_of, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


@dataclass
class Step:
    """Step of a search."""

    scale: float


@dataclass
class Search:
    """Result of a search.

    Attributes
    ----------
    best : float or None
        The best scale,
        if any.
    first, last : Step
        Of the steps.
    spread : (n, p) float64
        Of the points.

    """

    best: float | None
    first: Step
    last: Step
    pairs: tuple[tuple[float, float], ...]
    spread: NDArray[np.float64]
    run: Callable[[], None]
    notes: str = ""


@fields_of(Step)
class StepOut(BaseModel):
    """A step."""


@fields_of(Search)
class SearchOut(BaseModel):
    """A search."""

    notes: list[str] = Field(description="In words.")


@arrays_of(Search)
class SearchArraysOut(BaseModel):
    """Arrays of a search."""


def test_a_model_has_the_fields_of_the_result() -> None:
    """Their types in JSON, and their descriptions; all are required, and those of the model stay."""
    schema = SearchOut.model_json_schema()
    assert set(schema["required"]) == {"notes", "best", "first", "last", "pairs"} == schema["properties"].keys()
    assert schema["description"] == "A search."
    best, first, pairs, notes = (schema["properties"][name] for name in ("best", "first", "pairs", "notes"))
    assert (best["anyOf"], best["description"]) == ([{"type": "number"}, {"type": "null"}], "The best scale, if any.")
    assert (first["$ref"], first["description"]) == ("#/$defs/StepOut", "Of the steps.")
    assert pairs["items"] == {"type": "array", "items": {"type": "number"}}
    assert (notes["type"], notes["description"]) == ("array", "In words.")


def test_an_array_has_the_model_of_its_axes() -> None:
    """The docstring has their number."""
    assert SearchArraysOut.model_json_schema()["properties"] == {
        "spread": {"$ref": "#/$defs/MatrixOut", "description": "(n, p): Of the points."}
    }
