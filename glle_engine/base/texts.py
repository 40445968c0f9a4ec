"""Texts that name options and calls as values, so that each interface writes these as its own users do; and notes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CALLS = {
    "upload": "`client.dataset`",
    "fit": "`client.fit`",
    "embed": "`client.embed`",
    "delete-posterior": "`client.posterior({}).delete()`",
    "delete-embedding": "`client.delete_embedding({})`",
    "cancel-job": "`client.job({}).cancel()`",
    "delete-results": "over HTTP",
}
"""Calls that texts name, as Python has them; the value of such a `Way` is the id of the resource, or None."""
UPLOAD_OPTIONS = (
    *("labels", "colors", "features", "id", "ignore", "one_hot", "missing"),
    *("header", "delimiter", "decimal", "charset", "sheet"),
)
"""Options of data that texts name; other options are settings of methods, or `force`."""
FEATURE = "feature"
"""Name of a `Way` that is a feature, by its number from 0."""
_BEGIN, _END = "\ue000", "\ue001"  # characters for private use, which `repr` escapes in the names that users give
_MARK = re.compile(f"{_BEGIN}(.*?){_END}")


class Way(NamedTuple):
    """Option with its value, a call, or a feature, that a text names.

    Parameters
    ----------
    name
        Name of the option, one of `CALLS`, or `FEATURE`.
    value
        Value of the option: a text, a number, true, or a list of columns; number of a feature; id of the resource of a
        call. None if there is none.

    """

    name: str
    value: Any = None

    def __format__(self, spec: str) -> str:
        """Return the mark by which an f-string carries this value to a `Text`."""
        del spec
        return f"{_BEGIN}{json.dumps([self.name, _plain(self.value)])}{_END}"


class Text(str):
    """Text of parts, some of which are a `Way`. As a str it names options as keyword arguments of Python.

    The parts may be f-strings with ways in them, such as ``f"Raise {Way('n_neighbors')}."``. Errors, problems and notes
    make such an f-string a text. An f-string or ``str.join`` of a text is a plain str without the parts; use ``+`` or
    `Text` to put texts together.
    """

    __slots__ = ("parts",)
    parts: tuple[str | Way, ...]

    def __new__(cls, *parts: str | Way) -> Self:
        """Return the text of the parts, which may be texts themselves."""
        pieces: list[str | Way] = []
        for part in parts:
            for each in parts_of(part):
                if pieces and isinstance(pieces[-1], str) and isinstance(each, str):
                    pieces[-1] += each
                elif each:
                    pieces.append(each if isinstance(each, str) else each._replace(value=_plain(each.value)))
        text = super().__new__(cls, "".join(part if isinstance(part, str) else in_python(part) for part in pieces))
        text.parts = tuple(pieces)
        return text

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle the parts."""
        del protocol
        return Text, self.parts

    def __add__(self, other: str) -> Text:
        """Return both texts as one."""
        return Text(self, other)

    def __radd__(self, other: str) -> Text:
        """Return both texts as one."""
        return Text(other, self)

    @classmethod
    def from_json(cls, parts: Iterable[Any]) -> Self:
        """Return the text of parts in JSON, the inverse of `to_json`."""
        return cls(*(part if isinstance(part, str) else Way(part["name"], part["value"]) for part in parts))


@dataclass(frozen=True)
class Note:
    """Warning, finding or decision for the user.

    Attributes
    ----------
    code : str
        Stable kebab-case name; each code has one meaning.
    message : str
        The finding, its meaning and a remedy, in one or two sentences; a `Text` if it names options, calls or features.

    """

    code: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", Text(self.message))

    def with_names(self, names: Sequence[str] | None) -> Note:
        """Return the note with names in place of features such as ``X[:, 3]``."""
        if names is None:
            return self
        parts = parts_of(self.message)
        named = (names[part.value] if isinstance(part, Way) and part.name == FEATURE else part for part in parts)
        return replace(self, message=Text(*named))

    def to_dict(self) -> dict[str, Any]:
        """Return {"code", "message", "message_parts"}."""
        return {"code": self.code, "message": str(self.message), "message_parts": to_json(self.message)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        return cls(value["code"], Text.from_json(value["message_parts"]))


def to_json(text: str) -> list[Any]:
    """Return the parts of a text as JSON: texts, and objects with the name and the value of an option or call."""
    return [part._asdict() if isinstance(part, Way) else part for part in parts_of(text)]


def _plain(value: Any) -> Any:
    """Return a number of numpy as Python's, a whole float as an integer, and NaN or infinity as its text."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def parts_of(text: str | Way) -> tuple[str | Way, ...]:
    """Return the parts of a text; an f-string has a mark for each of its ways."""
    if isinstance(text, Text):
        return text.parts
    if isinstance(text, Way) or _BEGIN not in text:
        return (text,)
    try:
        return tuple(Way(*json.loads(part)) if place % 2 else part for place, part in enumerate(_MARK.split(text)))
    except (ValueError, TypeError):  # a caller's text has these characters
        return (text,)


def joined(texts: Iterable[str], sign: str = " ") -> Text:
    """Join texts with a separator between them; the counterpart of ``str.join``."""
    first, *others = [*texts] or [""]
    return Text(first, *(part for text in others for part in (sign, text)))


def written(text: str, write: Callable[[Way], str]) -> str:
    """Return a text as a string, in which `write` writes each `Way`."""
    return "".join(write(part) if isinstance(part, Way) else part for part in parts_of(text))


def in_python(way: Way) -> str:
    """Return an option as a keyword argument, a call, or a feature as a column of X."""
    if way.name == FEATURE:
        return f"X[:, {way.value}]"
    if way.name in CALLS:
        return CALLS[way.name].format("id" if way.value is None else repr(way.value))
    return way.name if way.value is None else f"{way.name}={way.value!r}"
