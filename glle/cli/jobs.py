"""`glle jobs`: list, show, wait, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glle.cli.connection import asking, shared, tell, tell_all, tell_one
from glle.cli.options import add_options, given
from glle.types import JobsOptions

if TYPE_CHECKING:
    import argparse

    from glle import Client

_COLUMNS = {
    "id": lambda told: told["id"],
    "kind": lambda told: told["kind"],
    "status": lambda told: told["status"],
    "done": lambda told: f"{told['progress']['done']}/{told['progress']['total']}",
    "stage": lambda told: told["progress"]["stage"],
    "about": lambda told: told["posterior"] or told["dataset"],
    "created": lambda told: told["created"],
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    group = commands.add_parser("jobs", help="jobs of a running service")
    actions = group.add_subparsers(required=True, metavar="action")

    listing = actions.add_parser("list", parents=[shared()], help="all, the newest first")
    add_options(listing, JobsOptions, {"status": ("", "only of this status"), "kind": ("", "only of this kind")})
    listing.set_defaults(run=asking(_list))

    for name, run, told in (
        ("show", _show, "what is known of one"),
        ("wait", _wait, "until it has ended; exit code 1 when it did not succeed"),
        ("cancel", _cancel, "stop one, queued or running"),
    ):
        action = actions.add_parser(name, parents=[shared()], help=told)
        action.add_argument("id")
        action.set_defaults(run=asking(run))
        if run is _wait:
            action.add_argument("--timeout", type=float, metavar="S", help="seconds to wait; the job goes on")


def _list(chosen: argparse.Namespace, glle: Client) -> int:
    return tell_all(chosen, [job.told for job in glle.jobs(**given(chosen, JobsOptions))], _COLUMNS)


def _show(chosen: argparse.Namespace, glle: Client) -> int:
    return tell_one(chosen, glle.job(chosen.id).told)


def _wait(chosen: argparse.Namespace, glle: Client) -> int:
    job = glle.job(chosen.id).wait(chosen.timeout)
    return tell(chosen, job.told, f"{job.id}  {job.kind} {job.status}")


def _cancel(chosen: argparse.Namespace, glle: Client) -> int:
    job = glle.job(chosen.id).cancel()
    return tell(chosen, job.told, f"{job.id}  {job.kind} {job.status}")
