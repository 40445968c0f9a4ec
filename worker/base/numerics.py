"""Numerics kinds: which bits a worker computes.

`numbers` names the bits of a result. It is the engine's `NUMBERS` if the worker's fingerprint is the pinned one, and
`NUMBERS+fingerprint` otherwise (`glle_engine.posterior.fingerprint`). Ids, cache keys and queue names carry it, so that
results of two kinds never mix. An API process has no kind; it chooses one for new work.
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
    """Set the kind of this process ("" for the pinned one); return its numbers."""
    _own[0] = numbers_of(kind)
    return _own[0]


def own_numbers() -> str:
    """Return the numbers of this process; the pinned ones until `adopt`."""
    return _own[0]


def numbers_of(kind: str) -> str:
    """Return this version's numbers of a kind."""
    return f"{glle_engine.NUMBERS}{_SEPARATOR}{kind}" if kind else glle_engine.NUMBERS


def kind_of(numbers: str) -> str:
    """Return the fingerprint in numbers, "" for the pinned kind."""
    return numbers.partition(_SEPARATOR)[2]


def is_of_this_version(numbers: str) -> bool:
    """Return whether numbers belong to any kind of this version."""
    return numbers.partition(_SEPARATOR)[0] == glle_engine.NUMBERS


def numbers_for(numbers: str) -> str:
    """Return the numbers of a new job about a result with given numbers.

    A job about a result of another version gets this version's numbers; its worker refuses it.
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
