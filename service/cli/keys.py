"""`glle keys`: create, list, revoke and rotate API keys, whether the service runs or not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from glle.table import table_text
from service.cli.options import add_flags, days, print_message, print_result, span
from service.cli.scrub import with_stores
from worker.records.ids import DEFAULT
from worker.storage.api_keys import SCOPES

if TYPE_CHECKING:
    import argparse

    from worker.base.settings import Settings
    from worker.stores import Stores

_KEY_COLUMNS = ("id", "tenant", "scopes", "created", "expires", "name")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add `glle keys` to the commands, with the actions create, list, revoke and rotate."""
    keys = commands.add_parser("keys", help="create, list, revoke and rotate API keys")
    actions = keys.add_subparsers(required=True, metavar="action")

    create = actions.add_parser("create", help="create a key and print it once")
    create.add_argument("--tenant", default=DEFAULT, help="owner of the data (%(default)s)")
    create.add_argument(
        "--scope", action="append", choices=SCOPES, dest="scopes", help="write includes read, admin includes all (read)"
    )
    create.add_argument("--name", default="", help="a note about the holder of the key")
    create.add_argument("--expires-days", type=days, help="days until the key expires (never)")
    create.set_defaults(run=with_stores(_create, is_new=True))

    listing = actions.add_parser("list", help="list the keys without their secrets")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=with_stores(_list))

    revoke = actions.add_parser("revoke", help="make a key invalid within a second")
    revoke.set_defaults(run=with_stores(_revoke))

    rotate = actions.add_parser("rotate", help="give a key a new secret and print it once")
    rotate.add_argument(
        "--overlap-hours", type=span, default=24.0, help="hours for which the old secret stays valid (%(default)g)"
    )
    rotate.set_defaults(run=with_stores(_rotate))
    for action in (revoke, rotate):
        action.add_argument("id", help="id of the key, from `glle keys list`")
    for action in actions.choices.values():
        add_flags(action, settings, ["data_dir"])


def _create(options: argparse.Namespace, stores: Stores) -> int:
    scopes = tuple(options.scopes or ("read",))
    key, secret = stores.keys.create(options.tenant, scopes, options.name, options.expires_days)
    validity = f"until {key.expires}" if key.expires else "until it is revoked"
    print_message(f"Key {key.id} of tenant {key.tenant}: {', '.join(key.scopes)}; valid {validity}.")
    print_message("It is not shown again:")
    print_result(secret)
    return 0


def _list(options: argparse.Namespace, stores: Stores) -> int:
    every_key = stores.keys.all()
    if options.json:
        print_result(json.dumps([{name: getattr(key, name) for name in _KEY_COLUMNS} for key in every_key]))
        return 0
    rows = [
        (key.id, key.tenant, ",".join(key.scopes), key.created, key.expires or "never", key.name) for key in every_key
    ]
    print_result(table_text([_KEY_COLUMNS, *rows]))
    return 0


def _revoke(options: argparse.Namespace, stores: Stores) -> int:
    key = stores.keys.revoke(options.id)
    print_message(f"Key {key.id} of tenant {key.tenant} is revoked.")
    return 0


def _rotate(options: argparse.Namespace, stores: Stores) -> int:
    key, secret = stores.keys.rotate(options.id, options.overlap_hours)
    print_message(f"Key {key.id} has a new secret; the old one stays valid for {options.overlap_hours:g} hours.")
    print_message("It is not shown again:")
    print_result(secret)
    return 0
