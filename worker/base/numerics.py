"""Numerics kinds: the bits that a worker makes, by name.

`numbers` names the bits of a result. It is the engine's `NUMBERS` where the worker's fingerprint is the pinned one, and
`NUMBERS+fingerprint` elsewhere (`glle_engine.posterior.fingerprint`). Ids, cache keys and the name of the queue carry it, so that
work of one kind never meets work of another. An API process has no kind; it chooses one for new work.
"""

from __future__ import annotations

import platform
import socket

import numpy as np
import scipy  # type: ignore[import-untyped, unused-ignore] # typed where its stubs are installed

import glle_engine

_SEPARATOR = "+"
_own = [glle_engine.NUMBERS]  # of this process; a worker measures its kind before it takes work


def adopt(kind: str) -> str:
    """Make results of this process those of a kind ("" for the pinned one); return its numbers."""
    _own[0] = numbers_of(kind)
    return _own[0]


def own_numbers() -> str:
    """Return the numbers of this process; the pinned ones until a kind is adopted."""
    return _own[0]


def numbers_of(kind: str) -> str:
    """Return the numbers of a kind of this version, "" for the pinned kind."""
    return f"{glle_engine.NUMBERS}{_SEPARATOR}{kind}" if kind else glle_engine.NUMBERS


def kind_of(numbers: str) -> str:
    """Return the kind that numbers are of: the fingerprint, or "" for the pinned kind."""
    return numbers.partition(_SEPARATOR)[2]


def is_of_this_version(numbers: str) -> bool:
    """Return whether a worker of this version, of whatever kind, may have these numbers."""
    return numbers.partition(_SEPARATOR)[0] == glle_engine.NUMBERS


def numbers_for(numbers: str) -> str:
    """Return the numbers of a job about something of given numbers.

    They are the same within this version. Work on results of another version is this version's, which refuses it.
    """
    return numbers if is_of_this_version(numbers) else glle_engine.NUMBERS


def provenance() -> dict[str, str]:
    """Return the versions and the machine of this process."""
    return {
        "engine": glle_engine.__version__,
        "numbers": own_numbers(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "host": socket.gethostname(),
    }
