"""`python -m qa.load.queue`: measure how many tasks a second the queue's Redis can serve.

An embedded server syncs its log before each reply (`appendfsync always`). Some processes create and enqueue jobs of
many tenants. Other processes run the tasks as RQ workers do, but without a fork and without work: a task only starts
and ends its job. The server therefore gets the commands of a deployment whose tasks cost nothing. Each row of the table
has the commands of a task, those inside scripts included, the server's processor time for a task, and the number of
tasks a second at which the server's main thread would be busy all the time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import redis

from qa.frame import align, say
from worker.base.settings import Settings
from worker.connections.clients import connect_queue
from worker.execution.worker import TaskJob, TaskWorker, WorkerQueue
from worker.jobs.queue import FIT
from worker.jobs.rq_tasks import SERIALIZER
from worker.operations.embedded_redis import queue_server
from worker.records.job import INTERACTIVE
from worker.stores import process_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rq import Queue
    from rq.job import Job as RqJob

TENANTS = 1_000
SENDERS_OF_WORKERS = 4  # number of workers for each process that sends jobs
HEAD = ("workers", "tasks/s", "commands", "server, µs", "full at tasks/s")


def end_at_once(job_id: str) -> None:
    """Set a job to running, and then to succeeded."""
    jobs = process_stores().jobs
    jobs.start(job_id)
    jobs.succeed(job_id, done=1, total=1)


class IdleJob(TaskJob):
    """A task that does no work."""

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = {FIT: end_at_once}


class IdleQueue(WorkerQueue):
    """A queue of tasks that do no work."""

    job_class = IdleJob


class IdleWorker(TaskWorker):
    """An RQ worker that runs tasks in its own process."""

    def execute_job(self, job: RqJob, queue: Queue) -> None:
        """Run a task without forking a process for it."""
        self.perform_job(job, queue, self.prepare_execution(job))


class ServerUse(NamedTuple):
    """How much a server has done since its start: commands, and processor seconds of its main thread."""

    commands: int
    seconds: float

    @classmethod
    def from_info(cls, client: redis.Redis) -> ServerUse:
        """Read both from the server's INFO; commands inside scripts are counted, too."""
        info = client.info("everything")
        seconds = info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]
        return cls(info["total_commands_processed"], seconds)


def send(sender: int, count: int) -> None:
    """Create and enqueue `count` fits of many tenants; `sender` is the number of this process."""
    stores = process_stores()
    for number in range(count):
        name = f"{sender}-{os.getpid()}-{number}"
        jobs = stores.for_tenant(f"tenant-{number % TENANTS}").jobs
        job, _ = jobs.create(kind="fit", claim=name, posterior=name, spec={"dataset": name}, total=1, short=True)
        stores.queue.enqueue(job)


def work(settings: Settings, count: int) -> None:
    """Run an RQ worker until it has run `count` tasks."""
    worker = IdleWorker(
        [INTERACTIVE],
        name=f"idle-{os.getpid()}",
        connection=connect_queue(settings),
        serializer=SERIALIZER,
        job_class=IdleJob,
        queue_class=IdleQueue,
        log_job_description=False,
    )
    worker.work(logging_level="WARNING", max_jobs=count)


def measure(workers: int, tasks: int) -> list[str]:
    """Run about `tasks` tasks by a number of workers; return a row of the table, as in `HEAD`."""
    senders = max(1, workers // SENDERS_OF_WORKERS)
    count = workers * senders * -(-tasks // (workers * senders))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = queue_server(Settings(data_dir=folder))
        server.spawn()
        stack.callback(server.stop)
        url = server.wait().url
        settings = replace(Settings(data_dir=folder), redis_url=url, cache_url=url)  # nothing is cached
        os.environ.update(settings.to_env())
        process_stores.cache_clear()
        client = stack.enter_context(redis.Redis.from_url(url))
        fork = multiprocessing.get_context("fork")
        processes = [
            fork.Process(target=send, args=(number, count // senders), daemon=True) for number in range(senders)
        ]
        processes += [fork.Process(target=work, args=(settings, count // workers), daemon=True) for _ in range(workers)]
        before, began = ServerUse.from_info(client), time.perf_counter()
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0
        took, after = time.perf_counter() - began, ServerUse.from_info(client)
    spent = (after.seconds - before.seconds) / count
    commands = (after.commands - before.commands) / count
    figures = count / took, commands, 1e6 * spent, 1 / spent
    return [str(workers), *(f"{figure:,.0f}" for figure in figures)]


def main() -> None:
    """Measure with each number of workers, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m qa.load.queue", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 16], help="numbers of workers (%(default)s)")
    parser.add_argument("--tasks", type=int, default=400, help="tasks of each row (%(default)s)")
    options = parser.parse_args()
    say(align([HEAD, *(measure(workers, options.tasks) for workers in options.workers)]))


if __name__ == "__main__":
    main()
