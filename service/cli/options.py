"""The settings as options of the commands: each row of the one table is a flag, too."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from worker.base.settings import Settings, SettingsError, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEST = "setting_"


def add_flags(command: argparse.ArgumentParser, settings: Settings) -> None:
    """Give a command a flag for each setting; its help tells what holds without it."""
    group = command.add_argument_group("settings", "Each is an environment variable, too: --max-body is GLLE_MAX_BODY.")
    for row in rows():
        now = row.shown(getattr(settings, row.name))
        one_of = f" One of {', '.join(row.choices)}." if row.choices else ""
        group.add_argument(
            row.flag,
            dest=_DEST + row.name,
            metavar=type(row.default).__name__.upper(),
            help=f"{row.help}{one_of} ({now or 'empty'})".replace("%", "%%"),
        )


def given(chosen: argparse.Namespace) -> dict[str, str]:
    """Return the flags that were given, as environment variables.

    Raises
    ------
    SettingsError
        For a value that cannot be used, and for a password: every user of the machine sees command lines.

    """
    found = {}
    for row in rows():
        text = getattr(chosen, _DEST + row.name, None)
        if text is None:
            continue
        if row.secret and row.shown(text) != text:
            raise SettingsError(f"{row.flag} has a password, which command lines show: set {row.variable} instead.")
        row.parse(text, f"{row.flag} {text}")
        found[row.variable] = text
    return found


def settings_of(chosen: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Return the settings of a command line in an environment: flags come first."""
    return Settings.from_env({**environ, **given(chosen)})


def span(text: str) -> float:
    """Return a number of hours or days that a flag gives, a hundred years at most."""
    value = float(text)
    if not 0 <= value <= 36_500:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 36,500")
    return value
