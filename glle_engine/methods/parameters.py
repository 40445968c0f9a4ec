"""The parameters of a method, each said once: its domain, its default and what it means.

A specification is a frozen dataclass whose fields are made by `integer`, `number`, `choice`, `boolean` and `indices`.
The same words check a value, fill the JSON Schema and stand in the documentation.
"""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np

from glle_engine.base.errors import InvalidParameterError

Kind = Literal["integer", "number", "boolean", "word", "indices"]

_TYPES: dict[Kind, str] = {"integer": "integer", "number": "number", "boolean": "boolean"}
_KEY = "parameter"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """What a parameter may be.

    Attributes
    ----------
    kind
        Of its values, apart from the words.
    doc : str
        What it means, with its unit; sentences.
    words : tuple of str
        Words that may stand instead of a value of its kind.
    least, above, most, below : float, optional
        Bounds of a number; `above` and `below` are not reached.

    """

    kind: Kind
    doc: str
    words: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def checked(self, name: str, value: object) -> Any:
        """Return the value in Python's own type, or raise `InvalidParameterError`."""
        if isinstance(value, str) and value in self.words:
            return value
        found = self._converted(value)
        if found is None or (self.kind in {"integer", "number"} and not self._within(found)):
            told = self.domain()
            raise InvalidParameterError(f"{name}={_shown(value)} is not {told}.", remedy=f"Give {name} as {told}.")
        return found

    def domain(self) -> str:
        """Return its domain in words: "an integer of at least 2", "one of a, b"."""
        words = f"one of {', '.join(self.words)}" if len(self.words) > 1 else "".join(self.words)
        if self.kind == "word":
            return words
        own = {
            "integer": "an integer",
            "number": "a finite number",
            "boolean": "true or false",
            "indices": "a list of distinct integers from 0 on",
        }[self.kind]
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (
                ("of at least", self.least),
                ("above", self.above),
                ("of at most", self.most),
                ("below", self.below),
            )
            if bound is not None
        ]
        told = " ".join([own, " and ".join(bounds)]).strip()
        return f"{told}, or {words}" if words else told

    def schema(self, default: object) -> dict[str, Any]:
        """Return its JSON Schema."""
        told = {"description": self.doc, "default": list(default) if isinstance(default, tuple) else default}
        if self.kind == "word":
            return {"type": "string", "enum": list(self.words), **told}
        if self.kind == "indices":
            item = {"type": "integer", "minimum": 0}
            own: dict[str, Any] = {"type": "array", "items": item, "uniqueItems": True}
        else:
            bounds = {
                "minimum": self.least,
                "exclusiveMinimum": self.above,
                "maximum": self.most,
                "exclusiveMaximum": self.below,
            }
            own = {"type": _TYPES[self.kind], **{name: bound for name, bound in bounds.items() if bound is not None}}
        if self.words:
            return {"anyOf": [own, {"type": "string", "enum": list(self.words)}], **told}
        return {**own, **told}

    def _converted(self, value: object) -> Any:
        """Return the value in the type of the kind, None where it cannot be."""
        if self.kind == "boolean":
            return bool(value) if isinstance(value, (bool, np.bool_)) else None
        if self.kind == "integer":
            return _integer(value)
        if self.kind == "number" and isinstance(value, Real) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) else None
        if self.kind == "indices" and isinstance(value, (list, tuple)):
            found = tuple(i for i in map(_integer, value) if i is not None and i >= 0)
            return found if len(set(found)) == len(value) else None
        return None

    def _within(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


def integer(default: int | str, doc: str, *, least: int, most: int | None = None, words: tuple[str, ...] = ()) -> Any:
    """Declare an integer."""
    return _declared(default, Parameter(kind="integer", doc=doc, least=least, most=most, words=words))


def number(
    default: float | str,
    doc: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    words: tuple[str, ...] = (),
) -> Any:
    """Declare a finite number."""
    bounds = {"least": least, "above": above, "most": most, "below": below}
    return _declared(default, Parameter(kind="number", doc=doc, words=words, **bounds))


def choice(default: str, doc: str, *words: str) -> Any:
    """Declare one of several words."""
    return _declared(default, Parameter(kind="word", doc=doc, words=words))


def boolean(default: bool, doc: str) -> Any:  # noqa: FBT001 # a default, not a switch
    """Declare a truth value."""
    return _declared(default, Parameter(kind="boolean", doc=doc))


def indices(default: str, doc: str, *words: str) -> Any:
    """Declare a list of distinct indices, or one of several words."""
    return _declared(default, Parameter(kind="indices", doc=doc, words=words))


def _declared(default: object, parameter: Parameter) -> Any:
    return field(default=default, metadata={_KEY: parameter})


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """The parameters of a method: what all have in common. Each method has a subclass of its own.

    Raises
    ------
    InvalidParameterError
        For a value outside its domain.

    """

    together: ClassVar[str] = ""  # what a subclass says of parameters that belong together

    n_components: int = integer(2, "p, the dimension of the embedding.", least=1)

    def __post_init__(self) -> None:
        for name, parameter in self.parameters().items():
            object.__setattr__(self, name, parameter.checked(name, getattr(self, name)))
        self.check_together()

    def check_together(self) -> None:
        """Raise `InvalidParameterError` for an option that has no meaning beside the others."""

    @classmethod
    def parameters(cls) -> dict[str, Parameter]:
        """Return what each parameter may be, by name."""
        return {one.name: one.metadata[_KEY] for one in fields(cls)}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the parameters, as an object of which every member has a default."""
        defaults = {one.name: one.default for one in fields(cls)}
        members = {name: one.schema(defaults[name]) for name, one in cls.parameters().items()}
        return {"type": "object", "properties": members, "additionalProperties": False}

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as a JSON-able dictionary, every one of them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification of a dictionary; unknown names raise `InvalidParameterError`."""
        known = cls.parameters()
        if unknown := sorted(set(values) - set(known)):
            raise InvalidParameterError(
                f"Unknown parameters: {', '.join(map(str, unknown))}.", remedy=f"Known are {', '.join(known)}."
            )
        return cls(**values)


def _integer(value: object) -> int | None:
    """Return an integer of Python or numpy as an int, None for another value."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # a TypeError
    except TypeError:
        return None


def _shown(value: object) -> str:
    told = repr(value)
    return told if len(told) <= 60 else f"{told[:57]}..."
