"""`glle backup` and `glle restore`: everything that is the users', into one file and back."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.start_error import StartError

if TYPE_CHECKING:
    import argparse

    from worker.base.settings import Settings
    from worker.operations.backup.dump import BackupScope


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Add the commands to those of `glle`."""
    backup = commands.add_parser("backup", help="write everything that is the users' into one file")
    backup.add_argument("to", type=Path, help="a file, or a folder in which it is named by the time")
    backup.add_argument("--verify", action="store_true", help="look through that file instead, from end to end")
    backup.add_argument("--arrays", action="store_true", help="what the cache holds, too: else it is computed again")
    backup.set_defaults(run=_backup)

    restore = commands.add_parser("restore", help="put a backup back; what is there already stays as it is")
    restore.add_argument("file", type=Path, help="what `glle backup` wrote")
    restore.add_argument("--dry-run", action="store_true", help="look through it, and say what would be done")
    restore.add_argument("--overwrite", action="store_true", help="names and tags become those of the backup")
    restore.add_argument("--no-arrays", dest="arrays", action="store_false", help="leave what the cache held out")
    restore.set_defaults(run=_restore)
    for command in (backup, restore):
        command.add_argument("--tenant", action="append", dest="tenants", help="of this tenant only; may be repeated")
        command.add_argument("--keys", action="store_true", help="the bearer keys, too, by which nobody gets in")
        command.add_argument("--json", action="store_true", help="the report as JSON")
        command.add_argument("--data-dir", default=settings.data_dir, help="folder of all data (%(default)s)")


def _backup(chosen: argparse.Namespace, settings: Settings) -> int:
    from service.cli.data_folder import reached  # noqa: PLC0415 # each command loads what it needs
    from worker.base.files import temporary  # noqa: PLC0415 # each command loads what it needs
    from worker.operations.backup.archive import Writer  # noqa: PLC0415 # each command loads what it needs
    from worker.operations.backup.dump import dump  # noqa: PLC0415 # each command loads what it needs

    if chosen.verify:
        return _verify(chosen)
    settings = replace(settings, data_dir=chosen.data_dir)
    if not Path(settings.data_dir).is_dir() and not settings.redis_url:
        raise StartError(f"There is no data folder {settings.data_dir}. Name it with --data-dir.")
    path: Path = chosen.to
    if path.is_dir():
        path /= time.strftime("glle-%Y%m%dT%H%M%SZ.tar", time.gmtime())
    try:
        with reached(settings) as here, temporary(path.parent) as file:  # readable by its owner alone
            counts = dump(here, Writer(file), _chosen(chosen))
            file.publish(path)
    except OSError as error:
        remedy = "Make the folder, or room in it; a file that was there is as it was."
        raise StartError(f"{path} cannot be written: {error.strerror}. {remedy}") from error
    _tell(chosen, {kind: {"in the backup": count} for kind, count in counts.items()}, ("in the backup",))
    print(f"{path}: {path.stat().st_size:,} bytes.", file=sys.stderr)  # noqa: T201 # the command's output
    return 0


def _verify(chosen: argparse.Namespace) -> int:
    from worker.operations.backup.archive import Archive  # noqa: PLC0415 # each command loads what it needs

    with _opened(chosen.to) as file:
        manifest = Archive(file).manifest
    _tell(chosen, {kind: {"in the backup": count} for kind, count in manifest["counts"].items()}, ("in the backup",))
    said = f"{chosen.to} is whole: taken {manifest['created']} by glle {manifest['glle']}."
    print(said, file=sys.stderr)  # noqa: T201 # the command's output
    return 0


def _restore(chosen: argparse.Namespace, settings: Settings) -> int:
    from service.cli.data_folder import reached  # noqa: PLC0415 # each command loads what it needs
    from worker.operations.backup.archive import Archive  # noqa: PLC0415 # each command loads what it needs
    from worker.operations.backup.restore import COLUMNS, restore  # noqa: PLC0415 # each command loads what it needs

    with _opened(chosen.file) as file:
        archive = Archive(file)  # before any server is started, or folder made
        with reached(replace(settings, data_dir=chosen.data_dir)) as here:
            report = restore(here, archive, _chosen(chosen), rename=chosen.overwrite, dry=chosen.dry_run)
    _tell(chosen, report.rows, COLUMNS)
    done = "Nothing was changed: --dry-run." if chosen.dry_run else "Restored."
    print(done, file=sys.stderr)  # noqa: T201 # the command's output
    return 0


def _chosen(chosen: argparse.Namespace) -> BackupScope:
    from worker.operations.backup.dump import BackupScope  # noqa: PLC0415 # each command loads what it needs

    tenants = None if chosen.tenants is None else frozenset(chosen.tenants)
    return BackupScope(tenants=tenants, arrays=chosen.arrays, keys=chosen.keys)


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}. Name a file that `glle backup` wrote.") from error


def _tell(chosen: argparse.Namespace, rows: dict[str, dict[str, int]], columns: tuple[str, ...]) -> None:
    """Print what was counted, a row a kind."""
    if chosen.json:
        print(json.dumps(rows, indent=1))  # noqa: T201 # the command's output
        return
    first = max(map(len, rows))
    print("  ".join([" " * first, *columns]))  # noqa: T201 # the command's output
    for kind, counts in rows.items():
        cells = [f"{counts[column]:>{len(column)},}" for column in columns]
        print("  ".join([f"{kind:<{first}}", *cells]))  # noqa: T201 # the command's output
