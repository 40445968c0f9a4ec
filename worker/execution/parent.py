"""The parent process of a worker, which forks two RQ workers and a sampler, and replaces them when they end.

`main` is the command `glle worker`. The parent loads the engine once and forks its children, so that a child that was
killed is replaced within milliseconds:

    parent -> RQ worker of interactive tasks                     -> one work-horse for each task
          |-> RQ worker of batch tasks, then of interactive tasks -> one work-horse for each task
          `-> sampler, which answers requests for single draws

A first SIGTERM lets the children finish their work; a second one kills them, and other workers repeat their work. If
the parent dies, so do the children.
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
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from functools import partial
from multiprocessing import get_context

import redis
from rq import Worker as RqWorker
from rq.worker import WorkerStatus

import glle_engine
import glle_engine.methods  # the engine is loaded before the fork, not in each work-horse
from glle_engine import NUMBERS, manifolds
from glle_engine.eigen.eigenproblem import warm
from glle_engine.posterior.draw_cost import draw_cost
from glle_engine.posterior.fingerprint import PINNED_FINGERPRINT, fingerprint
from worker.base.clock import clock_skew
from worker.base.memory import memory_limit
from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError, shared_values
from worker.connections.clients import connect_queue, require_login
from worker.execution import process_guard
from worker.execution.sampler import SamplerLoop
from worker.execution.supervisor import Supervisor
from worker.execution.worker import LongTaskLock, work
from worker.observability import logging as logs
from worker.observability.live_workers import WorkerState, announce, prolong, withdraw
from worker.records.ids import text
from worker.records.job import BATCH, INTERACTIVE
from worker.stores import Stores, process_stores

RETRY_DELAY_SECONDS = 1.0  # pause between two attempts to reach a server
REMIND_SECONDS = 1.5  # pause between two signals to stop; RQ ignores a signal within a second of the last one
# The queues of the two RQ workers, in order of precedence. The worker "quick" takes no batch tasks, so that batch tasks
# cannot occupy both workers.
QUEUES_OF_ROLE = {"quick": (INTERACTIVE,), "batch": (BATCH, INTERACTIVE)}
WARMUP_POINTS = 100  # a fit of this many points loads the code of the engine before the fork
SWEPT = "glle:swept"  # key that exists for one heartbeat after a worker has begun a sweep of the queue

log = logging.getLogger(__name__)


class Worker:
    """The parent process of a worker: starts the two RQ workers and the sampler, and sends the heartbeats."""

    def __init__(self, name: str, settings: Settings) -> None:
        self._settings = settings
        self._name = name
        self._stores = Stores.connect(settings)
        self._supervisor = Supervisor(log.warning)
        self._long_task_lock = LongTaskLock()
        self._rq = {
            role: self._supervisor.add_forked(f"glle-{role}", partial(self._run_rq, role)) for role in QUEUES_OF_ROLE
        }
        self._supervisor.add_forked("glle-sampler", self._run_sampler, is_disposable=True)
        self._is_drawing = mmap.mmap(-1, 1)  # shared with the sampler
        self._next_heartbeat = 0.0
        self._reminded = 0.0  # monotonic time of the latest signal to the RQ workers

    def run(self) -> int:
        """Run the children until a signal to stop arrives and their work is done; return the exit code."""
        supervisor = self._supervisor
        supervisor.listen()
        supervisor.run(lambda _: self._send_heartbeat())
        self._reminded = time.monotonic()
        supervisor.stop(supervisor.children, tick=self._tick_while_stopping)
        supervisor.close()
        with suppress(redis.RedisError):
            withdraw(self._stores.client, self._name)
        return 0

    def _send_heartbeat(self) -> None:
        """Renew the worker's record and its alive file, once in each interval of heartbeats; then repair the queue.

        Only one worker of a deployment repairs the queue (`TaskQueue.sweep`) in each interval.
        """
        if time.monotonic() < self._next_heartbeat:
            return
        self._next_heartbeat = time.monotonic() + self._settings.heartbeat
        client = self._stores.client
        with suppress(OSError):  # the worker goes on when the disk is full
            prolong(self._settings)
        with suppress(redis.RedisError, ProblemError):
            announce(client, self._settings, self._state())
            if client.set(SWEPT, 1, nx=True, ex=self._settings.heartbeat):  # one sweep by any worker is enough
                self._stores.queue.sweep()

    def _state(self) -> WorkerState:
        busy = sum(map(self._is_busy, self._rq)) + self._is_drawing[0]
        return WorkerState(
            name=self._name,
            host=socket.gethostname(),
            busy=busy,
            engine=glle_engine.__version__,
            numbers=NUMBERS,
            threads=os.environ.get("OPENBLAS_NUM_THREADS", ""),
            skew=clock_skew(self._stores.client),
            memory=memory_limit(),
            settings=shared_values(self._settings),
        )

    def _is_busy(self, role: str) -> bool:
        """Return whether the RQ worker with this role runs a task now; raises `redis.RedisError`."""
        key = f"{RqWorker.redis_worker_namespace_prefix}{self._rq_name(role, self._rq[role].starts)}"
        return text(self._stores.client.hget(key, "state") or "") == WorkerStatus.BUSY

    def _tick_while_stopping(self) -> None:
        """Send heartbeats, and repeat the signal to stop to idle RQ workers.

        RQ's signal handler raises an exception, which a library may have swallowed.
        """
        self._send_heartbeat()
        if time.monotonic() - self._reminded < REMIND_SECONDS:
            return
        self._reminded = time.monotonic()
        for role, child in self._rq.items():
            with suppress(redis.RedisError):
                if child.pid and not self._is_busy(role):
                    child.send(signal.SIGTERM)

    def _rq_name(self, role: str, start: int) -> str:
        """Return the name of an RQ worker: `start` counts the processes that were started for its role, from 1."""
        return f"{self._name}.{role}.{start}"

    def _run_rq(self, role: str) -> int:
        process_stores.cache_clear()
        start = self._rq[role].starts
        name, predecessor = self._rq_name(role, start), self._rq_name(role, start - 1)
        return work(name, QUEUES_OF_ROLE[role], self._settings, self._long_task_lock, predecessor)

    def _run_sampler(self) -> int:
        process_stores.cache_clear()
        SamplerLoop(process_stores(), self._name, self._is_drawing).run()
        return 0


def main(name: str | None = None) -> int:
    """Run a worker until a signal to stop arrives; return the exit code.

    `name` is the worker's name in its record; by default, host name and pid. Raises `SettingsError` for an invalid name
    or setting, if results on this machine would differ in bits (`require_bits`), and if records or files are lost
    (`require_records`).
    """
    settings = Settings.from_env()
    if name is not None and not re.fullmatch(r"[\w-]+", name):
        raise SettingsError(f"{name!r} is not a name for a worker: use only letters, digits, _ and -.")
    logs.configure(settings)
    require_login(settings)
    load()
    gc.freeze()  # so that garbage collection in the children does not copy the pages that they share with the parent
    require_bits(settings)
    _wait_for_server(connect_queue(settings))
    require_records(settings)
    name = name or f"{socket.gethostname()}-{os.getpid()}".replace(".", "-")
    worker = Worker(name, settings)
    log.info("Worker %s started", name)
    code = worker.run()
    log.info("Worker %s stopped", name)
    return code


def load() -> None:
    """Load compiled code and compute the reference results; before the fork, so that all children share both."""
    import scipy.cluster.hierarchy  # noqa: PLC0415 # loaded by the engine at first use, which would be in each work-horse
    import scipy.optimize  # noqa: PLC0415
    import scipy.spatial  # noqa: F401, PLC0415

    warm()
    fingerprint()
    draw_cost(glle_engine.fit(manifolds.make("swiss_roll", WARMUP_POINTS, seed=0).X))  # first calls are slower


def require_bits(settings: Settings) -> None:
    """Raise `SettingsError` if reference results on this machine differ in bits from the published results.

    With the setting `allow_other_bits`, nothing is raised.
    """
    bits = fingerprint()
    if bits == PINNED_FINGERPRINT or settings.allow_other_bits == "on":
        return
    raise SettingsError(
        "The worker does not start, because its results would differ in bits: the reference results of this machine "
        f"have the fingerprint {bits}, the published ones {PINNED_FINGERPRINT}. Install the versions of "
        "requirements/server.lock. "
        "If draws of one posterior may differ in their last digits between your machines, start the worker with "
        "GLLE_ALLOW_OTHER_BITS=on. See docs/explanation/reproducibility.md."
    )


def require_records(settings: Settings) -> None:
    """Raise `SettingsError` if records in Redis or stored files are lost (`worker.storage.mark`).

    The check runs in a child process: it uses the object store, and the processes of tasks, which are forked later,
    could not use the store if their parent had used it before.
    """
    guard = partial(process_guard.die_with_parent, signal.SIGKILL, os.getpid())
    with ProcessPoolExecutor(1, get_context("fork"), guard) as pool:
        refusal = pool.submit(_find_start_refusal, settings).result()
    if refusal:
        raise SettingsError(refusal)


def _find_start_refusal(settings: Settings) -> str:
    with closing(Stores.connect(settings)) as stores:
        return stores.mark.start_refusal()


def _wait_for_server(connection: redis.Redis) -> None:
    """Wait until a server answers; exiting instead would mean restarts after ever longer pauses."""
    while True:
        try:
            connection.ping()
        except redis.RedisError as error:
            log.warning("The queue's Redis does not answer: %s", error)
            time.sleep(RETRY_DELAY_SECONDS)
        else:
            connection.close()
            return
