"""Derive pydantic models from the engine's result types: their fields, described as in the types' docstrings."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import getdoc
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, create_model

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Row = list[float]
Matrix = list[Row]

# An entry in the Attributes section of a docstring: names, the axes of an array or another type, and indented text.
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (\(.*?\))?.*\n((?: {4}.*\n?)*)", re.MULTILINE)
_FOR_TYPES = {"NDArray": NDArray, "Callable": Callable}  # the engine imports these only if TYPE_CHECKING


class _ArrayOut(BaseModel, Generic[T]):
    shape: list[int] = Field(description="Lengths of the axes.")
    dtype: str = Field(description="numpy's name of the type.", examples=["float64"])
    data: T = Field(description="Nested lists, the first axis outermost.")


class ArrayOut(_ArrayOut[list[Any]]):
    """An array with any number of axes."""


class VectorOut(_ArrayOut[Row]):
    """An array with one axis."""


class PlacesOut(_ArrayOut[list[int]]):
    """An array of row numbers, with one axis."""


class FlagsOut(_ArrayOut[list[bool]]):
    """An array of booleans, with one axis."""


class MatrixOut(_ArrayOut[Matrix]):
    """An array with two axes."""


class CubeOut(_ArrayOut[list[Matrix]]):
    """An array with three axes."""


def absent(description: str) -> Any:
    """Return a pydantic field that the JSON may leave out, but that is never null."""

    def without_default(schema: dict[str, Any]) -> None:
        schema.pop("default", None)
        alternatives = [alternative for alternative in schema.pop("anyOf", []) if alternative != {"type": "null"}]
        if len(alternatives) == 1:
            schema.update(alternatives[0])
        elif alternatives:
            schema["anyOf"] = alternatives

    return Field(default=None, description=description, json_schema_extra=without_default)


def fields_of(result: Any, *names: str) -> Callable[[type[M]], type[M]]:
    """Return a class decorator that adds the named fields of a result type to a pydantic model.

    Without names, it adds all fields but arrays and functions. Fields that the model already has stay. An array gets
    the model for its number of axes, which the docstring states, such as ``(n, p) float64``.
    """
    hints = get_type_hints(result, localns=_FOR_TYPES)
    documented = {
        name: (axes, " ".join(text.split()))
        for base in reversed(getattr(result, "__mro__", (result,)))
        for listed, axes, text in _ENTRY.findall(getdoc(base) or "")
        for name in listed.split(", ")
    }

    def derive(model: type[M]) -> type[M]:
        fields: dict[str, Any] = {}
        for name in names or [name for name, hint in hints.items() if get_origin(hint) not in {np.ndarray, Callable}]:
            if name not in model.model_fields:
                axes, text = documented.get(name, ("", ""))
                description = ": ".join(filter(None, (axes, text))) or None
                fields[name] = (_json_type(hints[name], axes), Field(description=description))
        return create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **fields
        )

    return derive


def arrays_of(result: Any) -> Callable[[type[M]], type[M]]:
    """Return a class decorator that adds the array fields of a result type to a pydantic model."""
    hints = get_type_hints(result, localns=_FOR_TYPES)
    return fields_of(result, *(name for name, hint in hints.items() if _is_array(hint)))


def _is_array(hint: Any) -> bool:
    return get_origin(hint) is np.ndarray


def _json_type(hint: Any, axes: str) -> Any:
    """Return the type in JSON for a type hint: a list for a tuple, a model for an array.

    `axes` names the axes of an array, such as ``(n, p)``.
    """
    if _is_array(hint):
        return (VectorOut, MatrixOut, CubeOut)[len(re.findall(r"\w+", axes)) - 1]
    if get_origin(hint) is tuple:
        return list[_json_type(get_args(hint)[0], "")]  # type: ignore[misc] # built from the hint
    return hint
