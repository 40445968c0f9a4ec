"""The formats of everything that outlives a process, and their versions: the one place where they are named.

What is read may have been written by another version of the program, before an upgrade, during one, or before it was
taken back. So each format has a version, and whoever reads

- reads his own version;
- migrates an older one, where `MIGRATIONS` says how, and refuses it where it does not;
- refuses a newer one with a problem that says the remedy, and neither changes nor deletes it.

A version that is not told is 1, and 1 is never told: so records of before there were versions, and the programs that
wrote them, are versions like any other. A version is raised by whoever changes a format so that an older program would
misread it, or could not read it at all.

What is found by name carries its version there, so that two versions live side by side: the entries of the array cache
(each is made anew where it is missing), the counts, and the queue. The queue's name stands for all that a worker has
to understand, and for the engine's numbers: a worker is never given a task that it cannot do.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from glle_engine import NUMBERS
from worker.base.numerics import is_of_this_version, kind_of, own_numbers
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.problems import ProblemError

Format = Literal[
    "job",
    "task",
    "dataset",
    "posterior",
    "calibration",
    "embedding",
    "keys",
    "idempotency",
    "entry",
    "stored",
    "counts",
    "backup",
]
Told = dict[str, Any]

VERSIONS: dict[Format, int] = {
    "job": 1,  # the hash of a job, its spec and its error
    "task": 1,  # the arguments of RQ's tasks
    "dataset": 1,  # the .json beside the .npy
    "posterior": 1,
    "calibration": 1,
    "embedding": 1,
    "keys": 1,  # keys.json
    "idempotency": 1,  # what is known of an Idempotency-Key, the digest of the request included
    "entry": 1,  # of the array cache: its layout, and what is in it
    "stored": 1,  # of the object store: an entry of its index; `path` is in every version. Objects tell their own
    "counts": 1,
    "backup": 1,
}
MEMBER = "format"  # of a record that is not of version 1

# (format, version) -> what makes the next version's record of such a one.
MIGRATIONS: dict[tuple[Format, int], Callable[[Told], Told]] = {}

_FOR_WORKERS: tuple[Format, ...] = ("job", "task", "dataset", "posterior", "calibration", "embedding")
FIRST_NUMBERS = "0.1.0"  # of what does not tell them
FIRST_QUEUE = "glle"

T = TypeVar("T")


def stamped(kind: Format, told: Told) -> Told:
    """Return a record as it is written: with its version, unless that is 1."""
    version = VERSIONS[kind]
    return told if version == 1 else {**told, MEMBER: version}


def written(kind: Format, told: Told) -> str:
    """Return the JSON of a record, with its version."""
    return json.dumps(stamped(kind, told), allow_nan=False)


def opened(kind: Format, what: str, told: Told) -> Told:
    """Return a record without its version, and as this version has it; `what` names it in a refusal.

    Raises
    ------
    ProblemError
        ``written-by-newer-version``, ``written-by-older-version``, ``record-unreadable``.

    """
    told = dict(told)
    version, own = _number(told.pop(MEMBER, 1)), VERSIONS[kind]
    if version is None:
        raise unreadable(what)
    if version > own:
        raise newer(what, version, own)
    while version < own:
        if (migrate := MIGRATIONS.get((kind, version))) is None:
            raise _too_old(what, version, own)
        told, version = migrate(told), version + 1
    return told


def read(kind: Format, what: str, raw: str | bytes, make: Callable[[Told], T]) -> T:
    """Return what `make` makes of a record in JSON; raises as `opened`."""
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise unreadable(what) from error
    if not isinstance(told, dict):
        raise unreadable(what)
    told = opened(kind, what, told)
    try:
        return make(told)
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(what) from error


def named(kind: Format, name: str) -> str:
    """Return a name under which only this version of a format is found."""
    version = VERSIONS[kind]
    return name if version == 1 else f"v{version}:{name}"


def queue_name(numbers: str | None = None) -> str:
    """Return the name of the queue of which this version's workers can do every task, to the last bit.

    Parameters
    ----------
    numbers
        Those of the workers (`worker.base.numerics`); None for the pinned kind.

    """
    generation = 1 + sum(VERSIONS[kind] - 1 for kind in _FOR_WORKERS)  # grows with each of them: no name comes again
    numbers = NUMBERS if numbers is None else numbers
    first = generation == 1 and numbers == FIRST_NUMBERS
    return FIRST_QUEUE if first else f"{FIRST_QUEUE}-{generation}-{numbers}"


def numbers_of_queue(name: str) -> str | None:
    """Return the numbers of the workers of a queue of this version, None for a queue of another version."""
    if name == queue_name():
        return NUMBERS
    numbers = name.split("-", 2)[-1]
    is_own = is_of_this_version(numbers) and kind_of(numbers) and name == queue_name(numbers)
    return numbers if is_own else None


def require_own_numbers(what: str, numbers: str) -> None:
    """Raise ``other-numbers`` for work whose results would not have the bits that its id stands for."""
    if numbers != own_numbers():
        raise _other_numbers(what, numbers, own_numbers())


def require_own_version(what: str, numbers: str) -> None:
    """Raise ``other-numbers`` for work that no worker of this version could do, of whatever numerics kind."""
    if not is_of_this_version(numbers):
        raise _other_numbers(what, numbers, NUMBERS)


def _other_numbers(what: str, numbers: str, own: str) -> ProblemError:
    return refuse(
        "other-numbers",
        409,
        f"{what} has the numbers of engine {numbers}; those of this one, {own}, differ in bits.",
        "Ask for it anew with the same data set and parameters: it gets an id of its own. What is cached is kept.",
        numbers=numbers,
        own=own,
    )


def newer(what: str, version: int, own: int) -> ProblemError:
    """Return the refusal of what a newer version of the program has written."""
    return refuse(
        "written-by-newer-version",
        503,
        f"{what} is of format {version}; this version of glle reads formats up to {own}.",
        "Finish the upgrade: run the newer version here, too (docs/how-to/upgrades.md). Nothing was changed.",
        format=version,
        newest=own,
    )


def unreadable(what: str) -> ProblemError:
    """Return the refusal of a record that no version has written so."""
    remedy = "It was left as it is: put it back from a backup (`glle restore`), or delete it."
    return refuse("record-unreadable", 500, f"{what} is damaged, or of another program.", remedy)


def _too_old(what: str, version: int, own: int) -> ProblemError:
    return refuse(
        "written-by-older-version",
        503,
        f"{what} is of format {version}; this version of glle reads format {own}, and cannot migrate it.",
        "Upgrade by way of a version in between, as docs/how-to/upgrades.md says. Nothing was changed.",
        format=version,
        own=own,
    )


def _number(told: object) -> int | None:
    """Return a version as it was told, None when it is none; Redis' hashes have text."""
    if isinstance(told, bool) or not isinstance(told, int | str):
        return None
    text = str(told)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0 else None
