"""Commands `glle jobs list`, `show`, `wait`, `cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle.cli.connection import connection_options, report, report_all, report_metadata, with_client
from glle.cli.options import add_options, selected
from glle.types import JobsOptions

if TYPE_CHECKING:
    import argparse

    from glle.client import Client, Job
    from glle.types import JobOut


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    group = commands.add_parser("jobs", help="list, show, wait for and cancel jobs")
    actions = group.add_subparsers(required=True, metavar="action")

    listing = actions.add_parser("list", parents=[connection_options()], help="list the jobs, newest first")
    add_options(listing, JobsOptions, {"status": ("", "only this status"), "kind": ("", "only this kind")})
    listing.set_defaults(run=with_client(_list))

    for name, run, text in (
        ("show", _show, "print the description of a job"),
        ("wait", _wait, "wait until a job has ended; exit code 1 if it failed"),
        ("cancel", _cancel, "cancel a queued or running job"),
    ):
        action = actions.add_parser(name, parents=[connection_options(timeout=run is _wait)], help=text)
        action.add_argument("id")
        action.set_defaults(run=with_client(run))


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
    return report_all(args, [job.metadata for job in client.jobs(**selected(args, JobsOptions))], _row)


def _show(args: argparse.Namespace, client: Client) -> int:
    return report_metadata(args, client.job(args.id).metadata)


def _wait(args: argparse.Namespace, client: Client) -> int:
    return _report_status(args, client.job(args.id).wait(args.timeout))


def _cancel(args: argparse.Namespace, client: Client) -> int:
    return _report_status(args, client.job(args.id).cancel())


def _report_status(args: argparse.Namespace, job: Job) -> int:
    return report(args, job.metadata, f"{job.id}  {job.kind} {job.status}")
