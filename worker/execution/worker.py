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
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import redis
from rq import Worker as RqWorker
from rq.worker import WorkerStatus

import glle_engine
from glle_engine import manifolds
from glle_engine.eigen.eigenproblem import warm
from glle_engine.posterior.cost.drawing import draw_cost
from glle_engine.posterior.fingerprint import PINNED, fingerprint
from worker.base.problems import ProblemError
from worker.base.settings import Settings, SettingsError
from worker.connections.clients import connect_queue
from worker.execution import rq_worker
from worker.execution.sampler import BUSY, Sampler
from worker.execution.supervisor import Supervisor
from worker.jobs.rq_types import BATCH, INTERACTIVE
from worker.observability import logging as logs
from worker.observability import tracing
from worker.observability.live_workers import WorkerState, announce, prolong, withdraw
from worker.stores import Stores, process_stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.execution.supervisor import Child

AGAIN_SECONDS = 1.0  # between two attempts to reach a server
HUNG_SECONDS = 15.0  # of one lane group; a draw of more than a second is a job
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
        self._sampler = self._supervisor.add_forked("glle-sampler", self._run_sampler, is_disposable=True)
        self._reports, self._reports_of_sampler = os.pipe()
        os.set_blocking(self._reports, False)
        self._busy_since: float | None = None  # monotonic time of the sampler's latest report of work
        self._next_heartbeat = 0.0
        self._reminded = 0.0  # monotonic time of the latest signal to the RQ workers

    def run(self) -> int:
        """Run the children until a signal, and until their work is done; return the exit code."""
        supervisor = self._supervisor
        supervisor.listen()
        supervisor.run(self._look)
        self._reminded = time.monotonic()
        supervisor.stop(supervisor.children, tick=self._look_while_stopping)
        supervisor.close()
        with suppress(redis.RedisError):
            withdraw(self._stores.client, self._name)
        return 0

    def _look(self, ended: Sequence[Child]) -> None:
        """Renew the record, and kill a sampler that hangs."""
        with suppress(BlockingIOError):
            last = os.read(self._reports, 65536)[-1:]
            self._busy_since = time.monotonic() if last == BUSY else None
        if self._sampler in ended:
            self._busy_since = None
        self._heartbeat()
        self._kill_if_hung()

    def _look_while_stopping(self) -> None:
        self._look(())
        self._remind()

    def _heartbeat(self) -> None:
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
        busy = sum(map(self._is_busy, self._rq)) + (self._busy_since is not None)
        return WorkerState(
            name=self._name,
            host=socket.gethostname(),
            busy=busy,
            engine=glle_engine.__version__,
            numbers=self._stores.numbers,
            threads=os.environ.get("OPENBLAS_NUM_THREADS", ""),
        )

    def _is_busy(self, role: str) -> bool:
        """Return whether RQ says that a child runs a task; raises `redis.RedisError`."""
        key = f"{RqWorker.redis_worker_namespace_prefix}{self._rq_name(role)}"
        found = RqWorker.find_by_key(key, connection=self._stores.client)
        return found is not None and found.get_state() == WorkerStatus.BUSY

    def _kill_if_hung(self) -> None:
        """Kill a sampler that has drawn one lane group for too long; its requests are drawn again, each by itself."""
        if self._busy_since is not None and time.monotonic() - self._busy_since > HUNG_SECONDS:
            log.warning("The sampler hangs: killing process %d", self._sampler.pid)
            self._busy_since = None
            self._sampler.send(signal.SIGKILL)

    def _remind(self) -> None:
        """Repeat the signal to an idle RQ worker, because a library may have lost the exception of its handler."""
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
        Sampler(process_stores(), self._name, self._reports_of_sampler).run()
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
