"""The commands that ask a running service, on top of the Python client; one file a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle.cli import compare, datasets, draw, fit, jobs

if TYPE_CHECKING:
    import argparse

# What the client reads from the environment; no settings of the service.
VARIABLES = frozenset({"GLLE_URL", "GLLE_KEY"})


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    for group in (datasets, fit, draw, compare, jobs):
        group.add(commands)
