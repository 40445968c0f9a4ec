"""A worker: two of RQ's workers, a sampler, and the parent that watches them.

`main` is the command `glle worker`. The parent loads the engine once and forks its children, so that a child that was
killed is replaced within milliseconds:

    parent -> RQ worker of interactive tasks         -> one work-horse for each
          |-> RQ worker of batches, then interactive -> one work-horse for each
          `-> sampler, which answers requests for single draws

The children die with the parent. On a first signal they finish their work, on a second one they are killed, and other
workers repeat it.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import re
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import redis
from rq import Queue
from rq import Worker as RqWorker
from rq.worker import WorkerStatus
from rq.worker_registration import register

import glle_engine
import glle_engine.methods  # the engine is loaded before the fork, not in each work-horse
from glle_engine import manifolds
from glle_engine.eigen.eigenproblem import warm
from glle_engine.posterior.cost.estimate import draw_cost
from glle_engine.posterior.fingerprint import PINNED, fingerprint
from worker.base.clock import clock_skew
from worker.base.memory import count_oom_kills, limit_work, memory_limit, offer_to_oom_killer
from worker.base.problems import ProblemError, out_of_memory, task_crashed
from worker.base.settings import Settings, SettingsError, shared_values
from worker.connections.clients import connect_queue, require_login
from worker.connections.retry import RetryPolicy
from worker.execution import process_guard, tasks
from worker.execution.sampler import SamplerLoop
from worker.execution.supervisor import Supervisor
from worker.jobs.queue import SERIALIZER, SafeJob
from worker.observability import logging as logs
from worker.observability import tracing
from worker.observability.live_workers import PATIENCE_SECONDS, WorkerState, announce, prolong, withdraw
from worker.records.job import BATCH, INTERACTIVE
from worker.stores import Stores, process_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from redis import Redis
    from redis.client import Pipeline
    from rq.executions import Execution
    from rq.job import Job as RqJob

    from worker.base.problems import Problem

MAX_MISSED = 4  # heartbeats, after which a task counts as abandoned
LOCK_SECONDS = 30  # of maintenance, after which the lock of a killed worker ends (RQ: a quarter of an hour)
RQ_RESERVE = 15  # seconds that RQ subtracts from the time to live of a worker for its wait for a task
AGAIN_SECONDS = 1.0  # between two attempts to reach a server
REMIND_SECONDS = 1.5  # between two signals; RQ ignores a second one within a second
QUEUES_OF_ROLE = {"quick": (INTERACTIVE,), "batch": (BATCH, INTERACTIVE)}  # none starves
LOADED_POINTS = 100
CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV}  # by which a work-horse ends itself
SWEPT = "glle:swept"  # exists for a heartbeat after a worker has looked for lost tasks

log = logging.getLogger(__name__)


def end_stopped(task: RqJob, connection: Redis) -> None:
    """Cancel the job of a task that was stopped."""
    del connection
    process_stores().jobs.finish_cancel(task.args[0])


class TaskJob(SafeJob):
    """An RQ job that can run the tasks of this worker."""

    handlers: ClassVar[Mapping[str, Callable[..., None]]] = tasks.HANDLERS
    stopped_callback = staticmethod(end_stopped)


class WorkerQueue(Queue):
    """A queue whose maintenance lock outlives a killed worker by half a minute at most."""

    job_class = TaskJob

    def acquire_maintenance_lock(self) -> bool:
        """Return whether the lock is acquired."""
        return bool(self.connection.set(self.registry_cleaning_key, 1, nx=True, ex=LOCK_SECONDS))


class TaskWorker(RqWorker):
    """RQ's forking worker, which notices an abandoned task after `MAX_MISSED` heartbeats."""

    max_connection_wait_time = 2.0  # between two attempts to reach the queue's Redis (RQ: a minute)
    _oom_kills = 0  # of this machine before the task

    def get_heartbeat_ttl(self, job: RqJob, working_time: float = 0.0) -> int:
        """Return the seconds without a heartbeat after which a task counts as abandoned (RQ adds a minute)."""
        del job, working_time
        return int(self.job_monitoring_interval * MAX_MISSED)

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Renew the worker's keys in one round trip (RQ: three, each of which waits for the disk).

        An idle worker also enters the registry again: RQ has removed one that was cut off longer than its keys last.
        """
        if pipeline is not None:
            super().heartbeat(timeout, pipeline)
            return
        with self.connection.pipeline(transaction=False) as own:
            super().heartbeat(timeout, own)
            own.hset(self.key, mapping=self.serialize())
            register(self, own)
            own.execute()

    def cleanup_execution(self, job: RqJob, pipeline: Pipeline, execution: Execution | None = None) -> None:
        """End a task, and remove it from the list of taken ones, where RQ leaves one whose work-horse was killed."""
        super().cleanup_execution(job, pipeline, execution)
        pipeline.lrem(Queue(job.origin, connection=self.connection).intermediate_queue_key, 0, job.id)

    def fork_work_horse(self, job: RqJob, queue: Queue) -> None:
        """Fork a work-horse, and note how many processes the kernel has killed for memory before."""
        self._oom_kills = count_oom_kills()
        super().fork_work_horse(job, queue)

    def handle_work_horse_killed(self, job: RqJob, retpid: int, ret_val: int, rusage: object) -> None:
        """Count a task whose process was killed, for the metrics; fail its job if it would be killed again."""
        super().handle_work_horse_killed(job, retpid, ret_val, rusage)  # type: ignore[no-untyped-call] # of RQ
        stores = process_stores()
        stores.counts.add("tasks_killed", job.origin)
        stores.counts.flush()
        if (problem := self._find_problem(ret_val)) is not None:
            job.retries_left = 0
            stores.jobs.fail(job.args[0], problem)

    def _find_problem(self, status: int | None) -> Problem | None:
        """Return the problem of a task that has ended its process, or None if someone else has.

        The kernel kills for memory by SIGKILL, as does a restart. A crash has the same reason if compiled code does not
        check its allocations.
        """
        if status is None or not os.WIFSIGNALED(status):
            return None
        signum, allowed = os.WTERMSIG(status), process_stores().settings.method_bytes
        if signum == signal.SIGKILL:
            return out_of_memory(allowed, memory_limit()) if count_oom_kills() > self._oom_kills else None
        return task_crashed(signal.Signals(signum).name, allowed) if signum in CRASHES else None

    def teardown(self) -> None:
        """Take leave of the queue's Redis without waiting for it: the worker's keys expire by themselves."""
        self.connection.set_retry(RetryPolicy(0.0, "GLLE_REDIS_URL"))
        with suppress(redis.RedisError, OSError):
            super().teardown()  # type: ignore[no-untyped-call] # of RQ

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:
        """Kill the work-horse and exit.

        The timer of RQ's heartbeats must not fire meanwhile: its exception would replace the exit, and RQ would then
        take the death of the work-horse for a failure, and use a retry.
        """
        left, handler = signal.alarm(0), signal.signal(signal.SIGALRM, signal.SIG_IGN)
        super().request_force_stop(signum, frame)  # raises, unless it ignores the signal
        signal.signal(signal.SIGALRM, handler)
        if callable(handler):
            signal.alarm(left or 1)


def begin_work_horse(parent: int) -> None:
    """Prepare a forked work-horse, which dies with its worker."""
    process_guard.die_with_parent(signal.SIGKILL, parent)
    offer_to_oom_killer()
    limit_work(process_stores().settings.method_bytes)
    process_stores().counts.clear()  # its parent's


def work(name: str, queues: Sequence[str], settings: Settings) -> int:
    """Work on queues under a name until a signal; return the exit code."""
    process_stores()  # each work-horse has them from the fork
    os.register_at_fork(after_in_child=partial(begin_work_horse, os.getpid()))
    worker = TaskWorker(
        list(queues),
        name=name,
        connection=connect_queue(settings, retry=RetryPolicy(PATIENCE_SECONDS, "GLLE_REDIS_URL")),
        serializer=SERIALIZER,
        job_class=TaskJob,
        queue_class=WorkerQueue,
        worker_ttl=RQ_RESERVE + settings.heartbeat,
        job_monitoring_interval=settings.heartbeat,
        maintenance_interval=settings.heartbeat,
        log_job_description=False,
    )
    worker.log_result_lifespan = False
    worker.work(logging_level=None)  # `worker.observability.logging` sets it
    return 0


class Worker:
    """The parent of a worker's processes."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._settings = settings
        self._name = name
        self._stores = Stores.connect(settings)
        self._supervisor = Supervisor(log.warning)
        self._rq = {
            role: self._supervisor.add_forked(f"glle-{role}", partial(self._run_rq, role)) for role in QUEUES_OF_ROLE
        }
        self._supervisor.add_forked("glle-sampler", self._run_sampler, is_disposable=True)
        self._is_drawing = mmap.mmap(-1, 1)  # shared with the sampler
        self._next_heartbeat = 0.0
        self._reminded = 0.0  # monotonic time of the latest signal to the RQ workers

    def run(self) -> int:
        """Run the children until a signal, and until their work is done; return the exit code."""
        supervisor = self._supervisor
        supervisor.listen()
        supervisor.run(lambda _: self._look())
        self._reminded = time.monotonic()
        supervisor.stop(supervisor.children, tick=self._look_while_stopping)
        supervisor.close()
        with suppress(redis.RedisError):
            withdraw(self._stores.client, self._name)
        return 0

    def _look(self) -> None:
        """Renew the worker's record and its alive file; let one worker look for lost tasks."""
        if time.monotonic() < self._next_heartbeat:
            return
        self._next_heartbeat = time.monotonic() + self._settings.heartbeat
        client = self._stores.client
        with suppress(OSError):  # a full disk; the worker works on
            prolong(self._settings)
        with suppress(redis.RedisError, ProblemError):
            announce(client, self._settings, self._state())
            if client.set(SWEPT, 1, nx=True, ex=self._settings.heartbeat):  # one worker is enough
                self._stores.queue.sweep()

    def _state(self) -> WorkerState:
        busy = sum(map(self._is_busy, self._rq)) + self._is_drawing[0]
        return WorkerState(
            name=self._name,
            host=socket.gethostname(),
            busy=busy,
            engine=glle_engine.__version__,
            numbers=self._stores.numbers,
            threads=os.environ.get("OPENBLAS_NUM_THREADS", ""),
            skew=clock_skew(self._stores.client),
            memory=memory_limit(),
            settings=shared_values(self._settings),
        )

    def _is_busy(self, role: str) -> bool:
        """Return whether RQ says that a child runs a task; raises `redis.RedisError`."""
        key = f"{RqWorker.redis_worker_namespace_prefix}{self._rq_name(role)}"
        found = RqWorker.find_by_key(key, connection=self._stores.client)
        return found is not None and found.get_state() == WorkerStatus.BUSY

    def _look_while_stopping(self) -> None:
        """Look, and repeat the signal to an idle RQ worker: a library may have lost the exception of its handler."""
        self._look()
        if time.monotonic() - self._reminded < REMIND_SECONDS:
            return
        self._reminded = time.monotonic()
        for role, child in self._rq.items():
            with suppress(redis.RedisError):
                if child.pid and not self._is_busy(role):
                    child.send(signal.SIGTERM)

    def _rq_name(self, role: str) -> str:
        """Return the name of an RQ worker, which differs from that of its predecessor."""
        return f"{self._name}.{role}.{self._rq[role].starts}"

    def _run_rq(self, role: str) -> int:
        process_stores.cache_clear()
        return work(self._rq_name(role), QUEUES_OF_ROLE[role], self._settings)

    def _run_sampler(self) -> int:
        process_stores.cache_clear()
        SamplerLoop(process_stores(), self._name, self._is_drawing).run()
        return 0


def main(name: str | None = None) -> int:
    """Work until a signal; return the exit code. `name` in the registry is by default that of host and process.

    Raises `SettingsError` for a name or a setting that is not valid, and if this machine computes other bits than the
    deployment (`require_bits`).
    """
    settings = Settings.from_env()
    if name is not None and not re.fullmatch(r"[\w-]+", name):
        raise SettingsError(f"A worker's name has letters, digits, _ and - only, not {name!r}.")
    logs.configure(settings)
    require_login(settings)
    load()
    gc.freeze()  # keep the pages shared with the children
    require_bits(settings)
    _wait_for_server(connect_queue(settings))
    name = name or f"{socket.gethostname()}-{os.getpid()}".replace(".", "-")
    worker = Worker(name, settings)
    log.info("Worker %s started", name)
    code = worker.run()
    log.info("Worker %s stopped", name)
    return code


def load() -> None:
    """Load what all processes of workers share, before a fork: compiled code, and the reference results."""
    if tracing.has_collector():
        tracing.load()
    warm()
    fingerprint()
    draw_cost(glle_engine.fit(manifolds.make("swiss_roll", LOADED_POINTS, seed=0).X))  # first calls take milliseconds


def require_bits(settings: Settings) -> None:
    """Raise `SettingsError` unless reference results of this machine have the bits of the deployment."""
    own, expected = fingerprint(), settings.allow_other_bits or PINNED
    if own == expected:
        return
    remedy = (
        "Start all processes without GLLE_ALLOW_OTHER_BITS."
        if own == PINNED
        else "Install the versions of requirements/server.lock. If all workers are such machines, start "
        f"all processes of the deployment with GLLE_ALLOW_OTHER_BITS={own}."
    )
    raise SettingsError(
        "The worker does not start, because its results would differ in bits: the reference results of this machine "
        f"have the fingerprint {own}, those of the deployment {expected}. {remedy} See "
        "docs/explanation/reproducibility.md."
    )


def _wait_for_server(connection: redis.Redis) -> None:
    """Wait until a server answers; an exit would be restarted with ever longer pauses."""
    while True:
        try:
            connection.ping()
        except redis.RedisError as error:
            log.warning("The queue's Redis does not answer: %s", error)
            time.sleep(AGAIN_SECONDS)
        else:
            connection.close()
            return
