"""Commands `glle jobs list`, `show`, `wait`, `cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle.cli.connection import add_command, argument, report, report_all, report_metadata
from glle.cli.options import select_options
from glle.types import JobsOptions

if TYPE_CHECKING:
    import argparse

    from glle.cli.connection import Commands
    from glle.client import Client, Job
    from glle.types import JobOut


def add(commands: Commands) -> None:
    """Add the command."""
    group = commands.add_parser("jobs", help="list, show, wait for and cancel jobs")
    actions = group.add_subparsers(required=True, metavar="action")
    id_ = argument("id")
    add_command(actions, _list, options=[JobsOptions])
    add_command(actions, _show, id_)
    add_command(actions, _wait, id_, timeout=True)
    add_command(actions, _cancel, id_)


def _row(job: JobOut) -> dict[str, object]:
    progress = job["progress"]
    return {
        **{name: job[name] for name in ("id", "kind", "status")},
        "done": f"{progress['done']}/{progress['total']}",
        "stage": progress["stage"],
        "about": job["posterior"] or job["dataset"],
        "created": job["created"],
    }


def _list(args: argparse.Namespace, client: Client) -> int:
    """List the jobs, newest first."""
    return report_all(args, [job.metadata for job in client.jobs(**select_options(args, JobsOptions))], _row)


def _show(args: argparse.Namespace, client: Client) -> int:
    """Print the description of a job."""
    return report_metadata(args, client.job(args.id).metadata)


def _wait(args: argparse.Namespace, client: Client) -> int:
    """Wait until a job has ended; exit code 1 if it failed."""
    return _report_status(args, client.job(args.id).wait(args.timeout))


def _cancel(args: argparse.Namespace, client: Client) -> int:
    """Cancel a queued or running job."""
    return _report_status(args, client.job(args.id).cancel())


def _report_status(args: argparse.Namespace, job: Job) -> int:
    return report(args, job.metadata, f"{job.id}  {job.kind} {job.status}")
