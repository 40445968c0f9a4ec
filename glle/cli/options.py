"""Command-line options generated from the types of the API."""

from __future__ import annotations

import argparse
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from glle.types import FitOptions, UploadOptions

_COLUMNS = ("columns of the file", "by names or patterns such as 'x*'")
_PARAMETERS = ("parameters", "as in the API; the service has the defaults")
_SHORT = {"n_neighbors": "-k", "n_components": "-p"}


def add_options(parser: argparse.ArgumentParser, options: type) -> None:
    """Add one option for each member of a `TypedDict`, with its description as help."""
    group = parser.add_argument_group(*(_COLUMNS if options is UploadOptions else _PARAMETERS))
    annotated = get_type_hints(options, include_extras=True)
    for name, hint in get_type_hints(options).items():
        flags = [_SHORT[name]] if options is FitOptions and name in _SHORT else []
        (described,) = get_args(annotated[name])  # of NotRequired
        text = getattr(described, "__metadata__", ("",))[0].replace("%", "%%")
        group.add_argument(
            *flags, "--" + name.replace("_", "-"), dest=name, default=argparse.SUPPRESS, help=text, **_argument(hint)
        )


def select_options(args: argparse.Namespace, options: type) -> dict[str, Any]:
    """Return the options that the command line has."""
    return {name: getattr(args, name) for name in get_type_hints(options) if hasattr(args, name)}


def _argument(hint: Any) -> dict[str, Any]:
    """Return the arguments of `add_argument` for a type."""
    if get_origin(hint) in {Union, UnionType}:
        hints = [part for part in get_args(hint) if part is not type(None)]
        words = [word for part in hints if get_origin(part) is Literal for word in get_args(part)]
        others = [part for part in hints if get_origin(part) is not Literal]
        argument = _argument(others[0]) if others else {"choices": words}
        return {**argument, "type": _or_words(argument["type"], words)} if others and words else argument
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    if get_origin(hint) is list:
        return {**_argument(get_args(hint)[0]), "nargs": "+"}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    return {"type": hint if hint in {int, float} else str, "metavar": {int: "N", float: "X"}.get(hint, "TEXT")}


def _or_words(number: Any, words: list[str]) -> Any:
    def value(text: str) -> Any:
        return text if text in words else number(text)

    value.__name__ = f"number or {' or '.join(words)}"  # the type in argparse's error messages
    return value
