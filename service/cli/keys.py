"""`glle keys`: make, list, revoke and rotate bearer keys, whether the service runs or not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from service.cli.options import span
from worker.records.tenants import DEFAULT
from worker.tenancy.api_keys import SCOPES, KeyStore

if TYPE_CHECKING:
    import argparse

    from worker.base.settings import Settings

_COLUMNS = ("id", "tenant", "scopes", "created", "expires", "name")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the commands to those of `glle`."""
    keys = commands.add_parser("keys", help="make, list, revoke and rotate the keys that requests are let in with")
    ways = keys.add_subparsers(required=True, metavar="what")

    create = ways.add_parser("create", help="make a key and print it, this once")
    create.add_argument("--tenant", default=DEFAULT, help="whose data it is for (%(default)s)")
    create.add_argument(
        "--scope", action="append", choices=SCOPES, dest="scopes", help="what it allows; write includes read, admin all"
    )
    create.add_argument("--name", default="", help="a note on who has it")
    create.add_argument("--expires-days", type=span, help="after so many days it is no longer good (never)")
    create.set_defaults(run=_create)

    ways.add_parser("list", help="list the keys, without what lets in").set_defaults(run=_list)

    revoke = ways.add_parser("revoke", help="make a key worthless, within a second")
    revoke.set_defaults(run=_revoke)

    rotate = ways.add_parser("rotate", help="give a key a new secret and print it, this once")
    rotate.add_argument(
        "--overlap-hours", type=span, default=24.0, help="so long the present one is good, too (%(default)g)"
    )
    rotate.set_defaults(run=_rotate)
    for way in (revoke, rotate):
        way.add_argument("id", help="the key's id, as `glle keys list` tells it")
    for way in ways.choices.values():
        way.add_argument("--data-dir", default=settings.data_dir, help="folder of all data (%(default)s)")


def _create(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings  # the folder is what was chosen
    scopes = tuple(chosen.scopes or ("read",))
    store = _store(chosen)
    key, spoken = store.create(chosen.tenant, scopes, chosen.name, chosen.expires_days)
    until = f"until {key.expires}" if key.expires else "until it is revoked"
    _say(f"Key {key.id} of tenant {key.tenant}: {', '.join(key.scopes)}; good {until}. Kept in {store.path}.")
    _say("It is not shown again:")
    print(spoken)  # noqa: T201 # the command's output
    return 0


def _list(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings
    rows = [
        (key.id, key.tenant, ",".join(key.scopes), key.created, key.expires or "never", key.name)
        for key in _store(chosen).all()
    ]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())  # noqa: T201 # the command's output
    return 0


def _revoke(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings
    key = _store(chosen).revoke(chosen.id)
    _say(f"Key {key.id} of tenant {key.tenant} is revoked.")
    return 0


def _rotate(chosen: argparse.Namespace, settings: Settings) -> int:
    del settings
    key, spoken = _store(chosen).rotate(chosen.id, chosen.overlap_hours)
    _say(f"Key {key.id} has a new secret; the one before is good for {chosen.overlap_hours:g} hours. Not shown again:")
    print(spoken)  # noqa: T201 # the command's output
    return 0


def _store(chosen: argparse.Namespace) -> KeyStore:
    return KeyStore.under(chosen.data_dir)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 # the key alone goes to the output
