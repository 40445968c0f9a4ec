"""Flags of the commands for the settings, tables of the settings, and the output of commands."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from glle.table import table_text
from worker.base.settings import Settings, SettingsError, rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEST = "setting_"
# Largest value of an option that is a number of days: a hundred years. Options in hours have the same limit.
_MAX_SPAN = 36_500


CANNOT_START = 2  # exit code of a command whose settings, arguments or machine prevent its start


class StartError(RuntimeError):
    """A command of the server cannot start; the message gives the reason and the remedy."""


def add_flags(command: argparse.ArgumentParser, settings: Settings, names: Sequence[str] = ()) -> None:
    """Add to a command a flag for each setting, or only for the settings in `names` if there are any.

    The help of a flag shows the setting's value in `settings`.
    """
    group = command.add_argument_group("settings", "Each flag is also a variable: --data-dir is GLLE_DATA_DIR.")
    for row in rows():
        if names and row.name not in names:
            continue
        value = row.format(getattr(settings, row.name))
        choices = f" One of {', '.join(row.choices)}." if row.choices else ""
        group.add_argument(
            row.flag,
            dest=_DEST + row.name,
            metavar="SIZE" if row.is_size else type(row.default).__name__.upper(),
            help=f"{row.help}{choices} ({value or 'empty'})".replace("%", "%%"),
        )


def settings_of(options: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Return the settings of a command: its flags override the environment variables.

    Raises
    ------
    SettingsError
        For an invalid value, and for a password on the command line, which all users of the machine can see.

    """
    flags = {}
    for row in rows():
        text = getattr(options, _DEST + row.name, None)
        if text is None:
            continue
        if row.secret and row.format(text) != text:
            raise SettingsError(f"{row.flag} has a password, which command lines show: set {row.variable} instead.")
        flags[row.name] = text
    return Settings.from_env(environ, flags)


def require_both_urls(settings: Settings) -> None:
    """Raise `StartError` if the settings have a URL for only one of the two Redis servers."""
    if bool(settings.redis_url) != bool(settings.cache_url):
        is_set, missing = ("GLLE_REDIS_URL", "GLLE_CACHE_URL")[:: 1 if settings.redis_url else -1]
        raise StartError(
            f"{is_set} is set, but {missing} is not. Set both for servers of your own, or neither for embedded servers."
        )


def span(text: str) -> float:
    """Parse a number of hours or days from 0 to 36,500, as the `type` of an argparse argument."""
    value = float(text)
    if not 0 <= value <= _MAX_SPAN:
        raise argparse.ArgumentTypeError(f"{text} is not allowed: give a number from 0 to {_MAX_SPAN:,}")
    return value


def days(text: str) -> float:
    """Parse a number of days above 0 and up to 36,500, as the `type` of an argparse argument."""
    if not (value := span(text)):
        raise argparse.ArgumentTypeError(f"{text} days would end the key at once: give more, or leave the option out")
    return value


def print_result(text: str) -> None:
    """Print a result of a command to standard output."""
    print(text, flush=True)  # noqa: T201 # the command's output


def print_message(text: str) -> None:
    """Print a message of a command to standard error."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 # the command's messages


def list_settings() -> str:
    """Return a line of text for each setting: variable, default, help."""
    width = max(len(row.variable) for row in rows())
    return "\n".join(f"{row.variable:<{width}}  {row.format(row.default):<12}  {row.help}" for row in rows())


def current_values(environ: Mapping[str, str]) -> str:
    """Return a line of text for each setting: variable, value without secrets, and whether `environ` sets it."""
    settings = Settings.from_env(environ)
    shown = ((row, row.format(getattr(settings, row.name)) or "(empty)") for row in rows())
    return table_text([(row.variable, value, "set" if row.variable in environ else "default") for row, value in shown])
