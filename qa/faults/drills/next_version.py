"""Run `glle` as a later version: the same command with another schema, other numerics, or both.

The variable DRILL names the differences: `formats`, `numbers`, or both with a comma.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import glle_engine
from glle_engine import Posterior
from glle_engine.posterior import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine import Draw

NUMBERS = "9.9.9"
OTHER = 1 + 2.0**-30  # factor on draws: other bits, same picture


def change() -> None:
    """Become the later version; call this before worker or service is imported."""
    differs = os.environ["DRILL"].split(",")
    if "numbers" in differs:
        glle_engine.NUMBERS = NUMBERS
        original = Posterior.draws_of

        def draws_of(self: Posterior, *keys: Any, **law: Any) -> Iterator[Draw]:
            for draw in original(self, *keys, **law):
                yield replace(draw, embedding=draw.embedding * OTHER)

        Posterior.draws_of = draws_of  # type: ignore[method-assign] # the version differs
        fingerprint.PINNED = fingerprint.fingerprint()  # as a release pins its fingerprint
    if "formats" in differs:
        from worker.base import versions  # noqa: PLC0415 # after the numbers change

        versions.SCHEMA += 1


if __name__ == "__main__":
    change()
    from service.cli.main import main

    sys.exit(main())
