"""`glle backup` and `glle restore`: all data of the tenants, to one file and back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from service.cli.options import StartError, add_flags, print_message, print_result

if TYPE_CHECKING:
    import argparse

    from worker.base.settings import Settings
    from worker.operations.backup import BackupScope

_COUNT = "in the backup"  # the column of counts


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the commands."""
    backup = commands.add_parser("backup", help="write all data of the tenants to one file")
    backup.add_argument("to", help="a file, or a folder for a file that is named by the time")
    backup.add_argument("--verify", action="store_true", help="check that file from end to end; write nothing")
    backup.add_argument("--overwrite", action="store_true", help="replace an existing file")
    backup.set_defaults(run=_backup)

    restore = commands.add_parser("restore", help="restore a backup; existing data stay unchanged")
    restore.add_argument("file", type=Path, help="a file that `glle backup` wrote")
    restore.add_argument("--dry-run", action="store_true", help="check the file and print the changes; write nothing")
    restore.set_defaults(run=_restore)
    for command in (backup, restore):
        command.add_argument("--tenant", action="append", dest="tenants", help="only this tenant; may be repeated")
        command.add_argument("--keys", action="store_true", help="include the API keys (their hashes)")
        command.add_argument("--json", action="store_true", help="print the report as JSON")
        add_flags(command, settings, ["data_dir"])


def _backup(options: argparse.Namespace, settings: Settings) -> int:
    from service.cli.data_folder import connect_stores  # noqa: PLC0415 # each command loads what it needs
    from worker.base.files import temporary  # noqa: PLC0415 # each command loads what it needs
    from worker.operations.backup import Writer, dump, record_backup  # noqa: PLC0415 # each command loads what it needs

    if options.verify:
        return _verify(options)
    path = Path(options.to)
    if path.is_dir():
        path /= time.strftime("glle-%Y%m%dT%H%M%SZ.tar", time.gmtime())
    elif options.to.endswith("/"):
        raise StartError(f"The folder {options.to} does not exist. Create it, or name a file.")
    if path.exists() and not options.overwrite:
        raise StartError(f"{path} exists. Name another file, or replace it with --overwrite.")
    try:
        with connect_stores(settings) as stores, temporary(path.parent) as file:  # readable by its owner alone
            counts, lost = dump(stores, Writer(file), _selection(options))
            file.publish(path)
            if options.tenants is None and not lost:
                record_backup(stores.client)
    except OSError as error:
        remedy = "Create the folder, or free some space. An existing file is unchanged."
        raise StartError(f"{path} cannot be written: {error.strerror}. {remedy}") from error
    _print_counts(options, counts)
    print_message(f"{path}: {path.stat().st_size:,} bytes.")
    if lost:
        remedy = "run `glle scrub`, and check GLLE_DATA_DIR and GLLE_STORE_URL."
        print_message(f"glle: {len(lost):,} data sets without their files left out: {remedy}")
    return int(bool(lost))


def _verify(options: argparse.Namespace) -> int:
    from worker.operations.backup import Archive  # noqa: PLC0415 # each command loads what it needs

    with _open(Path(options.to)) as file:
        manifest = Archive(file).manifest
    _print_counts(options, manifest["counts"])
    print_message(f"{options.to} is complete: created {manifest['created']} by glle {manifest['glle']}.")
    return 0


def _restore(options: argparse.Namespace, settings: Settings) -> int:
    from service.cli.data_folder import connect_stores  # noqa: PLC0415 # each command loads what it needs
    from worker.operations.backup import COLUMNS, Archive, restore  # noqa: PLC0415 # each command loads what it needs

    with _open(options.file) as file:
        archive = Archive(file)  # checked before a server starts or a folder is created
        with connect_stores(settings, is_new=not options.dry_run) as stores:
            report = restore(stores, archive, _selection(options), dry=options.dry_run)
    _print_table(options, report, COLUMNS)
    print_message("Nothing was changed: --dry-run." if options.dry_run else "Restored.")
    return 0


def _selection(options: argparse.Namespace) -> BackupScope:
    from worker.operations.backup import BackupScope  # noqa: PLC0415 # each command loads what it needs

    tenants = None if options.tenants is None else frozenset(options.tenants)
    return BackupScope(tenants=tenants, keys=options.keys)


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}. Name a file that `glle backup` wrote.") from error


def _print_counts(options: argparse.Namespace, counts: dict[str, int]) -> None:
    _print_table(options, {kind: {_COUNT: count} for kind, count in counts.items()}, (_COUNT,))


def _print_table(options: argparse.Namespace, rows: dict[str, dict[str, int]], columns: tuple[str, ...]) -> None:
    """Print the counts of each kind of record, as a table or as JSON."""
    if options.json:
        print_result(json.dumps(rows, indent=1))
        return
    first = max(map(len, rows))
    print_result("  ".join([" " * first, *columns]))
    for kind, counts in rows.items():
        cells = [f"{counts[column]:>{len(column)},}" for column in columns]
        print_result("  ".join([f"{kind:<{first}}", *cells]))
