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
import sys
import time
from contextlib import suppress
from functools import partial

import redis
from rq import Worker as RqWorker
from rq.worker import WorkerStatus

import glle_engine
from glle_engine import manifolds
from glle_engine.eigen.eigenproblem import warm
from glle_engine.posterior.cost.drawing import draw_cost
from glle_engine.posterior.fingerprint import PINNED, fingerprint
from worker.base.clock import clock_skew
from worker.base.memory import memory_limit
from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError, shared_values
from worker.connections.clients import connect_queue, require_login
from worker.execution import rq_worker
from worker.execution.sampler import SamplerLoop
from worker.execution.supervisor import Supervisor
from worker.jobs.rq_types import BATCH, INTERACTIVE
from worker.observability import logging as logs
from worker.observability import tracing
from worker.observability.live_workers import WorkerState, announce, prolong, withdraw
from worker.stores import Stores, process_stores

AGAIN_SECONDS = 1.0  # between two attempts to reach a server
REMIND_SECONDS = 1.5  # between two signals; RQ ignores a second one within a second
QUEUES_OF_ROLE = {"quick": (INTERACTIVE,), "batch": (BATCH, INTERACTIVE)}  # none starves
LOADED_POINTS = 100
SWEPT = "glle:swept"  # exists for a heartbeat after a worker has looked for lost tasks

log = logging.getLogger(__name__)


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
                self._stores.recovery.sweep()

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
        return rq_worker.work(self._rq_name(role), QUEUES_OF_ROLE[role], self._settings)

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
    log.info("Worker %s started", name)
    code = Worker(name, settings).run()
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


if __name__ == "__main__":
    sys.exit(main())
