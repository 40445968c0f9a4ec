"""Command-line options from the contract's types: what the API can be asked, the commands can."""

from __future__ import annotations

import argparse
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def add_options(parser: argparse.ArgumentParser, options: type, named: dict[str, tuple[str, str]]) -> None:
    """Add an option for every member of a `TypedDict`.

    Parameters
    ----------
    named
        A short flag (or none) and a help text, for those that have one.

    """
    if not get_type_hints(options):
        return
    group = parser.add_argument_group("parameters", "as in the API; what is not given has the service's default")
    for name, hint in get_type_hints(options).items():
        flag, told = named.get(name, ("", ""))
        flags = [flag, "--" + name.replace("_", "-")] if flag else ["--" + name.replace("_", "-")]
        group.add_argument(*flags, dest=name, default=argparse.SUPPRESS, help=told or None, **_parsed(hint))


def given(chosen: argparse.Namespace, options: type) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: getattr(chosen, name) for name in get_type_hints(options) if hasattr(chosen, name)}


def _parsed(hint: Any) -> dict[str, Any]:
    """Return how argparse reads values of a type."""
    if get_origin(hint) in {Union, UnionType}:
        hints = [part for part in get_args(hint) if part is not type(None)]
        words = [word for part in hints if get_origin(part) is Literal for word in get_args(part)]
        others = [part for part in hints if get_origin(part) is not Literal]
        parsed = _parsed(others[0]) if others else {"choices": words}
        return {**parsed, "type": _or_words(parsed["type"], words)} if others and words else parsed
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    if get_origin(hint) is list:
        return {**_parsed(get_args(hint)[0]), "nargs": "+"}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    return {"type": hint if hint in {int, float} else str, "metavar": {int: "N", float: "X"}.get(hint, "TEXT")}


def _or_words(number: Any, words: list[str]) -> Any:
    def value(text: str) -> Any:
        return text if text in words else number(text)

    value.__name__ = f"number or {' or '.join(words)}"  # argparse names it when it refuses
    return value
