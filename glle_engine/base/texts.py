"""Texts for users that name options, API calls and features, which each interface writes in its own form.

Python shows an option as `missing='drop'`, the command line as `--missing drop`. A text therefore contains a
placeholder (`Way`) for each option, and each interface replaces the placeholders. Notes, errors and verdicts are such
texts.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, SupportsIndex

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
"""API calls that texts can name, as Python code; `{}` stands for the id of the resource, which is the `Way`'s value."""
UPLOAD_OPTIONS = (
    *("labels", "colors", "features", "id", "ignore", "one_hot", "missing"),
    *("header", "delimiter", "decimal", "charset", "sheet"),
)
"""Options of an upload that texts can name; all other options are parameters of methods, or `force`."""
FEATURE = "feature"
"""Name of a `Way` that stands for a feature; its value is the column of the feature, counted from 0."""
Role = Literal["read", "avoid", "first", "why"]
MARKS: dict[Role, str] = {"read": "✓ ", "avoid": "✗ ", "first": "", "why": ""}
"""What stands before a line of a verdict, by the role of the line."""
_BEGIN, _END = "\ue000", "\ue001"  # private-use characters, which `repr` escapes in names from users
_ENCODED = re.compile(f"{_BEGIN}(.*?){_END}")


class Way(NamedTuple):
    """Placeholder in a message (`Text`) for an option with its value, an API call, or a feature.

    Each interface writes it in its own form: Python shows an option as `missing='drop'`, and the command line shows the
    same option as `--missing drop`.

    Parameters
    ----------
    name
        Name of the option, name of the API call (a key of `CALLS`), or `FEATURE`.
    value
        Value of the option (a text, a number, true, or a list of columns), id of the resource of the call, or number of
        the feature; None for an option without a value, or a call without an id.

    """

    name: str
    value: Any = None

    def __format__(self, spec: str) -> str:
        """Return this placeholder as characters for an f-string, from which `Text` restores the `Way`.

        The characters are JSON between two private-use characters.
        """
        del spec
        return f"{_BEGIN}{json.dumps([self.name, _plain(self.value)])}{_END}"


class Text(str):
    """String made of plain parts and placeholders (`Way`); as a str, it shows each placeholder as Python code.

    A placeholder stands for an option, an API call or a feature, which Python, the command line and HTTP write in
    different ways. The parts may be f-strings with a `Way` in them, such as ``f"Raise {Way('n_neighbors')}."``. Such an
    f-string contains the `Way` between two special characters, by which errors, problems and notes find it when they
    convert the f-string to a `Text`. If you put a `Text` into an f-string or ``str.join``, the result is a plain str
    without the parts; join texts by ``+``, `joined` or `Text` instead.
    """

    __slots__ = ("parts",)
    parts: tuple[str | Way, ...]

    def __new__(cls, *parts: str | Way) -> Self:
        """Join the parts to one text.

        A part is a string, a placeholder (`Way`), or a `Text`. If a `Way` was formatted in an f-string, it is restored
        from the characters that it became.
        """
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
        """Pickle a `Text` as its `parts`, because its characters alone do not show which of them were a `Way`."""
        del protocol
        return Text, self.parts

    def __add__(self, other: str) -> Text:
        """Return this text followed by the other, as one `Text`."""
        return Text(self, other)

    def __radd__(self, other: str) -> Text:
        """Return the other text followed by this one, as one `Text`."""
        return Text(other, self)

    @classmethod
    def from_json(cls, parts: Iterable[Any]) -> Self:
        """Return the text of these `parts`, which `to_json` converted for JSON."""
        return cls(*(part if isinstance(part, str) else Way(part["name"], part["value"]) for part in parts))


@dataclass(frozen=True)
class Note:
    """Message for the user about a result: a warning, a finding, or what was decided, such as a guessed role.

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
        """Return the note with the feature names `names` in place of column numbers, such as ``X[:, 3]``."""
        if names is None:
            return self
        parts = parts_of(self.message)
        named = (names[part.value] if isinstance(part, Way) and part.name == FEATURE else part for part in parts)
        return replace(self, message=Text(*named))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary with `code`, `message`, and `message_parts` (`to_json`)."""
        return {"code": self.code, "message": str(self.message), "message_parts": to_json(self.message)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the note that `to_dict` converted to this dictionary."""
        return cls(value["code"], Text.from_json(value["message_parts"]))


@dataclass(frozen=True)
class Line:
    """One line of an audit's verdict, with its role.

    Attributes
    ----------
    role : {"read", "avoid", "first", "why"}
        Whether the line says what to read from the map, what not to read from it, what to do before the map is read,
        or why.
    text : Text

    """

    role: Role
    text: Text

    def __str__(self) -> str:
        return MARKS[self.role] + self.text

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary with `role`, `text`, and its `parts` (`to_json`)."""
        return {"role": self.role, "text": str(self.text), "parts": to_json(self.text)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the line of a verdict that `to_dict` converted to this dictionary."""
        return cls(value["role"], Text.from_json(value["parts"]))


def to_json(text: str) -> list[Any]:
    """Return the parts of a text for JSON: plain strings, and {"name", "value"} for each placeholder (`Way`)."""
    return [part._asdict() if isinstance(part, Way) else part for part in parts_of(text)]


def _plain(value: Any) -> Any:
    """Convert a value for JSON: numpy numbers to Python's, whole floats to int, and NaN and infinity to strings."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def parts_of(text: str | Way) -> tuple[str | Way, ...]:
    """Split a message into plain strings and placeholders (`Way`).

    In an f-string, a `Way` has become characters (`Way.__format__`): these characters are found and decoded.
    """
    if isinstance(text, Text):
        return text.parts
    if isinstance(text, Way) or _BEGIN not in text:
        return (text,)
    try:
        return tuple(_decode(part) if place % 2 else part for place, part in enumerate(_ENCODED.split(text)))
    except (ValueError, TypeError):  # the text has the private-use characters, but they encode no `Way`
        return (text,)


def _decode(mark: str) -> Way:
    """Return the `Way`, the placeholder in a message, that `Way.__format__` encoded as the text `mark`.

    Raises ValueError or TypeError for any other text.
    """
    way = Way(*json.loads(mark))
    if not isinstance(way.name, str):
        raise TypeError(way.name)
    return way


def joined(texts: Iterable[str], sign: str = " ") -> Text:
    """Join texts with the separator `sign` between them, as ``str.join`` does, but keep their placeholders (`Way`)."""
    first, *others = [*texts] or [""]
    return Text(first, *(part for text in others for part in (sign, text)))


def listed(words: Sequence[str], conjunction: str = "and") -> str:
    """Return words as a sentence lists them: "a", "a and b", or "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def written(text: str, write: Callable[[Way], str]) -> str:
    """Return a text as a plain string, in which each placeholder `way` is replaced by ``write(way)``."""
    return "".join(write(part) if isinstance(part, Way) else part for part in parts_of(text))


def in_python(way: Way) -> str:
    """Return Python code for `way`, the placeholder in a message for an option, an API call or a feature.

    An option becomes a keyword argument such as `reg=0.1`, and a feature a column such as `X[:, 3]`.
    """
    if way.name == FEATURE:
        return f"X[:, {way.value}]"
    if way.name in CALLS:
        return CALLS[way.name].format("id" if way.value is None else repr(way.value))
    return way.name if way.value is None else f"{way.name}={way.value!r}"
