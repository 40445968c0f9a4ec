"""Parameters, each declared once with its domain, default and description.

A specification is a frozen dataclass whose fields are declared by `integer`, `number`, `choice`, `boolean` and
`mapping`. Validation, the JSON Schema and the documentation all follow from these declarations.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter as Argument
from inspect import signature
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, get_args, get_type_hints

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.texts import Way

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

P = ParamSpec("P")
R = TypeVar("R")
Kind = Literal["integer", "number", "boolean", "word", "object"]

# For each kind of bound: its field of `Parameter`, its phrase in error messages, its keyword in JSON Schema, and the
# comparison of a value with the bound that must be true.
_BOUNDS: tuple[tuple[str, str, str, Callable[[float, float], bool]], ...] = (
    ("minimum", "of at least", "minimum", operator.ge),
    ("above", "above", "exclusiveMinimum", operator.gt),
    ("maximum", "of at most", "maximum", operator.le),
    ("below", "below", "exclusiveMaximum", operator.lt),
)
_KEY = "parameter"
_MAX_DEPTH = 32  # lists and mappings are nested at most this many times in a mapping to JSON values
_OTHER_NAMES = {
    "y": "labels",
    "target": "labels",
    "classes": "labels",
    "k": "n_neighbors",
    "dim": "n_components",
    "ndim": "n_components",
    "n_dims": "n_components",
    "n_jobs": "threads",
    "n_iter": "max_iter",
    "n_epochs": "max_iter",
}  # names in other libraries, and the names of the same parameters here
_RANDOM_STATE = Argument("random_state", Argument.KEYWORD_ONLY, default=None, annotation="Any")
LARGEST_COUNTER = 2**64 - 1  # seeds and indices of draws are 64-bit keys of the random generator


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """Domain and description of a parameter.

    Attributes
    ----------
    kind
        Type of the values; "word" if the value must be one of `words`.
    doc : str
        Description in sentences, with the unit.
    words : tuple of str
        The allowed values of kind "word". For other kinds, words that are allowed as well, such as "auto" in place of a
        number.
    minimum, above, maximum, below : float, optional
        Bounds of a number: `minimum` and `maximum` are allowed values, `above` and `below` are not.
    optional : bool
        Whether None is allowed.
    counts : bool
        Whether the value is a number of points. Fits to a sample of the points use a proportionally smaller value.
    fixed : int, optional
        The number that "auto" and None stand for, if this number does not depend on the data.

    """

    kind: Kind
    doc: str
    words: tuple[str, ...] = ()
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    optional: bool = False
    counts: bool = False
    fixed: int | None = None

    def check(self, name: str, value: object) -> Any:
        """Return the value as a Python type, or raise `InvalidParameterError` if it is outside the domain.

        If "auto" stands for one number, whatever the data are (`fixed`), "auto" and None become this number.
        For other parameters, None stays None if it is allowed (`optional`), and else becomes "auto" if that is allowed.
        """
        if self.fixed is not None and (value is None or (isinstance(value, str) and value == "auto")):
            return self.fixed
        if value is None and "auto" in self.words and not self.optional:
            return "auto"
        if (isinstance(value, str) and value in self.words) or (value is None and self.optional):
            return value
        converted = self._convert(value)
        if converted is None or not all(passes(converted, bound) for _, _, passes, bound in self._bounds()):
            raise InvalidParameterError(
                f"{as_option(name, value)} is not {self.domain()}.", remedy="Give another value."
            )
        return converted

    def domain(self) -> str:
        """Return the allowed values in words, such as "an integer of at least 2" or "one of a, b"."""
        named = self._named
        alternative = f"one of {', '.join(named)}" if len(named) > 1 else "".join(named)
        if self.kind == "word":
            return alternative
        kind = {
            "integer": "an integer",
            "number": "a finite number",
            "boolean": "true or false",
            "object": "a mapping of names to JSON values",
        }[self.kind]
        bounds = [
            f"{phrase} {'2^64 - 1' if bound == LARGEST_COUNTER else format(bound, 'g')}"
            for phrase, _, _, bound in self._bounds()
        ]
        domain = " ".join([kind, " and ".join(bounds)]).strip()
        alternative = alternative or ("null" if self.optional else "")
        return f"{domain}, or {alternative}" if alternative else domain

    def schema(self, default: object) -> dict[str, Any]:
        """Return the JSON Schema of the parameter's values, with its description and this default."""
        doc = self.doc if self.fixed is None else f"{self.doc} auto: {self.fixed}."
        common = {"description": doc, "default": default}
        if self.kind == "word":
            return {"type": "string", "enum": list(self.words), **common}
        schema = {"type": self.kind, **{keyword: bound for _, keyword, _, bound in self._bounds()}}
        if self._named:
            return {"anyOf": [schema, {"type": "string", "enum": list(self._named)}], **common}
        if self.optional:
            return {"anyOf": [schema, {"type": "null"}], **common}
        return {**schema, **common}

    @property
    def _named(self) -> tuple[str, ...]:
        return self.words if self.fixed is None else ("auto", *self.words)

    def _convert(self, value: object) -> Any:
        """Return the value in the Python type of this parameter's kind, or None if the value has another type."""
        if self.kind == "boolean":
            return bool(value) if isinstance(value, (bool, np.bool_)) else None
        if self.kind == "integer":
            return _integer(value)
        if self.kind == "object":
            return _json_object(value)
        if self.kind == "number" and isinstance(value, Real) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) else None
        return None

    def _bounds(self) -> Iterator[tuple[str, str, Callable[[float, float], bool], float]]:
        """Yield, for each bound that the parameter has, three facts about the kind of bound and the bound itself.

        The facts are a phrase for error messages such as "of at least", the keyword in JSON Schema such as "minimum",
        and the function that compares a value with the bound and is true for allowed values.
        """
        for name, phrase, keyword, passes in _BOUNDS:
            if (bound := getattr(self, name)) is not None:
                yield phrase, keyword, passes, bound


def integer(
    default: int | str | None, doc: str, *, words: tuple[str, ...] = (), counts: bool = False, **bounds: int
) -> Any:
    """Declare a field of a specification that is an integer; if its default is None, the value may be None, too.

    `words` are texts that are allowed in place of an integer, and `bounds` are `minimum` and `maximum`. `counts` says
    that the integer is a number of points. If its default is an integer, the field then also accepts "auto", which
    is replaced by the default. If "auto" is one of the `words`, it is not replaced: the method chooses the number.
    """
    fixed = default if counts and isinstance(default, int) and "auto" not in words else None
    domain: dict[str, Any] = {"words": words, "optional": default is None, "counts": counts, "fixed": fixed, **bounds}
    return _declare(default, Parameter(kind="integer", doc=doc, **domain))


def number(
    default: float | str | None, doc: str, *, words: tuple[str, ...] = (), counts: bool = False, **bounds: float
) -> Any:
    """Declare a field of a specification that is a finite number; if its default is None, it may be None, too.

    `words` are texts that are allowed in place of a number. `bounds` are `minimum` or `above`, and `maximum` or
    `below`. `counts` says that the number is a number of points.
    """
    domain: dict[str, Any] = {"words": words, "optional": default is None, "counts": counts, **bounds}
    return _declare(default, Parameter(kind="number", doc=doc, **domain))


def choice(default: str, doc: str, *words: str) -> Any:
    """Declare a field of a specification that is one of several words."""
    return _declare(default, Parameter(kind="word", doc=doc, words=words))


def boolean(default: bool, doc: str) -> Any:  # noqa: FBT001 # a default, not a switch
    """Declare a field of a specification that is true or false."""
    return _declare(default, Parameter(kind="boolean", doc=doc))


def mapping(doc: str) -> Any:
    """Declare a field of a specification that is None or a mapping from names to JSON values."""
    return _declare(None, Parameter(kind="object", doc=doc, optional=True))


def _declare(default: object, parameter: Parameter) -> Any:
    return field(default=default, metadata={_KEY: parameter})


@dataclass(frozen=True, kw_only=True)
class Specification:
    """Base of specifications, which are sets of parameters; each instance is validated when it is created.

    Raises
    ------
    InvalidParameterError
        For a value outside its domain.

    """

    def __post_init__(self) -> None:
        for name, parameter in self.parameters().items():
            object.__setattr__(self, name, parameter.check(name, getattr(self, name)))
        self.check_together()

    def check_together(self) -> None:
        """Raise `InvalidParameterError` for a meaningless combination of options; subclasses override this method."""

    def refuse_unused(self, option: str, *names: str) -> None:
        """Raise `InvalidParameterError` if one of the parameters `names` differs from its default.

        Call this method when `names` have no effect, because of the present value of the parameter `option`. The error
        names that value.
        """
        for name in names:
            if (value := getattr(self, name)) != type(self).__dataclass_fields__[name].default:
                raise InvalidParameterError(
                    f"{as_option(name, value)} would change nothing with {as_option(option, getattr(self, option))}.",
                    remedy=f"Leave {Way(name)} out, or change {Way(option)}.",
                )

    @classmethod
    def parameters(cls) -> dict[str, Parameter]:
        """Return a mapping from the name of each field to its `Parameter`."""
        return {item.name: item.metadata[_KEY] for item in fields(cls)}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the specification: an object whose members all have defaults."""
        members = {item.name: item.metadata[_KEY].schema(item.default) for item in fields(cls)}
        return {"type": "object", "properties": members, "additionalProperties": False}

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters that are not None as a JSON-able dictionary, whose digest is in the ids of results."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification with the values of a dictionary; unknown names raise `InvalidParameterError`."""
        require_known_names(values, cls.parameters())
        return cls(**values)


def require_known_names(names: Iterable[str], known: Iterable[str], kind: str = "parameters") -> None:
    """Raise `InvalidParameterError` if a name is not among the known names, and suggest the closest known name.

    `kind` is what the error calls the names, in the plural.
    """
    valid = list(dict.fromkeys(known))
    if unknown := sorted(set(map(str, names)) - set(valid)):
        close = [
            match
            for name in unknown
            for match in ([_OTHER_NAMES[name]] if _OTHER_NAMES.get(name) in valid else [])
            or get_close_matches(name, valid, 1)
            or [each for each in valid if each.startswith(name)][:1]
        ]
        raise InvalidParameterError(
            f"Unknown {kind}: {', '.join(unknown)}.",
            remedy=(f"Did you mean {', '.join(close)}? " if close else "") + f"The {kind} are {', '.join(valid)}.",
        )


def accepts_random_state(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that has a parameter `seed`: it then also takes `random_state`, scikit-learn's name for it.

    The decorated function replaces `random_state` by `seed` (`with_seed`).
    """

    @wraps(function)
    def call(*arguments: Any, random_state: Any = None, **keywords: Any) -> R:
        return function(*arguments, **with_seed({**keywords, "random_state": random_state}))

    shown = signature(function)
    others = [each for each in shown.parameters.values() if each.name != "random_state"]
    rest = [each for each in others if each.kind is Argument.VAR_KEYWORD]
    parameters = [each for each in others if each.kind is not Argument.VAR_KEYWORD]
    call.__signature__ = shown.replace(parameters=[*parameters, _RANDOM_STATE, *rest])  # type: ignore[attr-defined]
    return call


def with_keywords(*sources: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for functions with `**options`: `help` and editors then list the keywords that they accept.

    Each source supplies keywords for the signature: a specification its fields, a TypedDict its names, a function its
    keyword-only parameters, and a list its `inspect.Parameter` items. Only the service knows the defaults of a
    TypedDict's names: the signature shows the default None for names that may be None, and `...` for the others. If
    `Any` is one of the sources, `**options` stays in the signature, because the function accepts further names. Beside
    the keyword `seed`, the signature has `random_state`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        shown = signature(function)
        explicit = [each for each in shown.parameters.values() if each.kind is not Argument.VAR_KEYWORD]
        keywords = {each.name: each for source in sources for each in _keywords_of(source)}
        if "seed" in keywords:
            keywords["random_state"] = _RANDOM_STATE
        added = [each for name, each in keywords.items() if name not in shown.parameters]
        is_open = any(source is Any for source in sources)
        rest = [each for each in shown.parameters.values() if each.kind is Argument.VAR_KEYWORD and is_open]
        function.__signature__ = shown.replace(parameters=[*explicit, *added, *rest])  # type: ignore[attr-defined]
        return function

    return decorate


def _keywords_of(source: Any) -> Iterator[Argument]:
    """Yield keyword-only parameters from one of the sources that `with_keywords` takes.

    They are the fields of a dataclass, the keys of a TypedDict, the items of a list, or the keyword-only parameters of
    a function. `Any` has none.
    """
    if source is Any:
        return
    if isinstance(source, list):
        yield from source
    elif is_dataclass(source):
        for each in fields(source):
            yield Argument(each.name, Argument.KEYWORD_ONLY, default=each.default, annotation=each.type)
    elif isinstance(source, type):
        for name, hint in get_type_hints(source).items():
            takes_none = hint is Any or type(None) in get_args(hint)
            yield Argument(name, Argument.KEYWORD_ONLY, default=None if takes_none else ..., annotation=hint)
    else:
        yield from (each for each in signature(source).parameters.values() if each.kind is Argument.KEYWORD_ONLY)


def with_seed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the options in which `seed` replaces `random_state`; a `random_state` of None is dropped.

    Raises
    ------
    InvalidParameterError
        If the options have both names, or the `random_state` is neither an integer nor a generator of numpy.

    """
    renamed = dict(options)
    state = renamed.pop("random_state", None)
    if state is None:
        return renamed
    if "seed" in renamed:
        raise InvalidParameterError(
            "Both seed and random_state are given.", remedy="Give only one of them: both set the same seed."
        )
    if isinstance(state, np.random.Generator):
        state = state.integers(2**31)
    elif isinstance(state, np.random.RandomState):
        state = state.randint(2**31)
    if isinstance(state, bool) or not isinstance(state, Integral) or not 0 <= int(state) <= LARGEST_COUNTER:
        raise InvalidParameterError(
            f"random_state={state!r:.60} is not an integer of at least 0.",
            remedy="Give an integer, a numpy.random.Generator, or leave it out for the default seed.",
        )
    return {**renamed, "seed": int(state)}


def seed_of(seed: int, random_state: Any) -> int:
    """Return `seed`, or the seed that `random_state` determines if it is not None.

    Raises `InvalidParameterError` if both a `random_state` and a `seed` other than 0 are given, or if the
    `random_state` is neither an integer nor a generator of numpy.
    """
    options = {"seed": seed} if seed or random_state is None else {}
    return int(with_seed({**options, "random_state": random_state})["seed"])


def check_integer(name: str, value: object, lower_bound: int, *, counter: bool = False) -> int:
    """Return the value if it is an integer of at least `lower_bound`, else raise `InvalidParameterError`.

    A `counter` must also be below 2^64.
    """
    parameter = Parameter(kind="integer", doc="", minimum=lower_bound, maximum=LARGEST_COUNTER if counter else None)
    return int(parameter.check(name, value))


def check_positive(name: str, value: object, *, zero: bool = False) -> float:
    """Return the value if it is a finite positive number, else raise `InvalidParameterError`; `zero` also allows 0."""
    parameter = Parameter(kind="number", doc="", minimum=0) if zero else Parameter(kind="number", doc="", above=0)
    return float(parameter.check(name, value))


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise `InvalidParameterError` unless the value is one of the choices."""
    Parameter(kind="word", doc="", words=choices).check(name, value)


def _integer(value: object) -> int | None:
    """Return an integer of Python or numpy as an int; None for any other value."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type] # raises TypeError
    except TypeError:
        return None


def _json_object(value: object) -> dict[str, Any] | None:
    """Convert a mapping to JSON and back; return None for other values, and for a mapping that JSON cannot hold.

    JSON in UTF-8 cannot hold half a surrogate pair. Values that are nested deeper than `_MAX_DEPTH` count as values
    that JSON cannot hold, because some readers refuse them.
    """
    try:
        if not isinstance(value, Mapping) or not _is_shallow(value, _MAX_DEPTH):
            return None
        text = json.dumps(dict(value), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError):
        return None
    read: dict[str, Any] = json.loads(text)
    return read


def _is_shallow(value: object, depth: int) -> bool:
    """Return whether lists and mappings are nested at most `depth` times in a value."""
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else None
    return members is None or (depth > 0 and all(_is_shallow(member, depth - 1) for member in members))


def as_option(name: str, value: object) -> str | Way:
    """Return the mention of an option and its value in a message: a `Way`, which each interface writes in its form.

    If the value has more than 60 characters, or is neither a string nor a number, return the string "name=value".
    """
    text = _shorten(value)
    is_plain = isinstance(value, str | int | float) and text == repr(value)
    return Way(name, value) if is_plain else f"{name}={text}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
