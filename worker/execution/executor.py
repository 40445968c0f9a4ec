"""The executor: a resident process of a worker, with posteriors, compiled code and connections, for short work.

It draws what clients request one by one, a lane group at a time, and runs short tasks. Between two shards of a task,
and between lane groups of a shard with more than a tenth of a second of work, it looks for requests. Its parent
watches it (`worker.execution.worker`): the executor reports the begin and end of its work, and may be killed at any
moment.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import redis
from rq.timeouts import JobTimeoutException, UnixSignalDeathPenalty

from glle_engine.linalg import LANES
from worker.base.numerics import own_numbers
from worker.base.problems import ProblemError, problem_of
from worker.base.versions import queue_name, require_own_numbers
from worker.execution import tasks
from worker.execution.background_writer import BackgroundWriter
from worker.execution.draws import group_size, lane_group, make_draws, store_draws
from worker.execution.resident import RESIDENT, resident_bytes
from worker.execution.telemetry import TaskOrigin, observe_requests
from worker.jobs.executor_queue import DrawBatch, ExecutorQueue, ShortTask
from worker.jobs.rq_types import DRAWS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from glle_engine import Draw, Posterior
    from worker.records.draws import DrawKey
    from worker.stores import Stores

WAIT_SECONDS = 2  # for work, at a time; less than the time-out of an answer
FLUSH_SECONDS = 3.0  # between two writes of counts
GROWTH = 3  # times the bytes of its posteriors, after which an executor is replaced
LEAST_BYTES = 2**28
LOOK_SECONDS = 0.02  # between two looks for requests within a shard
AGAIN_SECONDS = 0.5  # between two attempts to reach a server
REPORT_SECONDS = 0.5
# So long a request for a draw of the latest lane group may have been sent before the draw was cached.
LATEST_SECONDS = 1.0
TOGETHER_BYTES = 2**16  # of the rest of a lane group, which takes less time than a separate command

NO_GROUP: tuple[str, frozenset[DrawKey], float] = ("", frozenset(), 0.0)

log = logging.getLogger(__name__)


class _StopWaiting(BaseException):
    """The signal to stop arrived while the executor waited for work."""


class Executor:
    """The loop of an executor.

    Parameters
    ----------
    name
        Its name, which the tasks that it holds carry.
    reports
        Write end of the pipe to the parent. Each line is JSON: ``{"task": id, "job": id}`` when a task begins, and
        ``{}`` when no work is in progress. For requests the ids are empty, and a line follows only after
        `REPORT_SECONDS`, because each one wakes the parent.

    """

    def __init__(self, stores: Stores, name: str, reports: int) -> None:
        self._stores = stores
        self._queue = ExecutorQueue(
            stores.client, queue=queue_name(own_numbers()), executor=name, heartbeat=stores.settings.heartbeat
        )
        self._reports = reports
        self._parent = os.getppid()
        self._is_waiting = False
        self._is_stopping = False
        self._flushed = self._looked = time.monotonic()
        self._reported = float("-inf")  # time of the last report of work, until one of none
        self._handlers: dict[str, Callable[..., None]] = {
            **tasks.HANDLERS,
            DRAWS: partial(tasks.draw, between_groups=self._serve_requests),
        }
        self._writer = BackgroundWriter()
        self._latest = NO_GROUP  # name of the arrays, draws, monotonic time
        self._most_bytes = resident_bytes() + GROWTH * max(stores.settings.resident_bytes, LEAST_BYTES)

    def run(self) -> None:
        """Work until SIGTERM, and end the work in progress."""
        RESIDENT.most_bytes = self._stores.settings.resident_bytes
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with self._writer:
            while not self._is_stopping and os.getppid() == self._parent:
                try:
                    self._step()
                except redis.RedisError as error:
                    log.warning("The executor waits for a Redis server: %s", error)
                    time.sleep(AGAIN_SECONDS)
                except _StopWaiting:
                    break
        self._stores.counts.flush()

    def _step(self) -> None:
        """Wait for work, and do it."""
        self._is_waiting = True
        try:
            work = None if self._is_stopping else self._queue.wait(LANES, WAIT_SECONDS)
        finally:
            self._is_waiting = False
        if isinstance(work, DrawBatch):
            if time.monotonic() - self._reported > REPORT_SECONDS:
                self._report(task="", job="")
            self._draw(work)
        elif work is not None:
            self._report(task=work.id, job=work.arguments[0])
            try:
                self._run(work)
            finally:
                self._report()
        elif self._reported > float("-inf"):
            self._report()
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._writer.submit(self._stores.counts.flush)
            self._flushed = time.monotonic()
            self._retire_if_large()

    def _retire_if_large(self) -> None:
        """End after the present work if the process has grown beyond its posteriors; the parent replaces it."""
        if (size := resident_bytes()) > self._most_bytes:
            log.warning("The executor takes %s bytes of memory, and is replaced", f"{size:,}")
            self._is_stopping = True

    def _run(self, task: ShortTask) -> None:
        """Run a task."""
        if task.name not in self._handlers:
            log.error("%r is not a task of this worker.", task.name)
            self._queue.end(task)
            return
        seconds = self._stores.settings.job_timeout
        with (
            TaskOrigin(task.metadata, task.enqueued).current(),
            UnixSignalDeathPenalty(seconds, JobTimeoutException, job_id=task.id),  # type: ignore[no-untyped-call] # RQ's
        ):
            self._looked = time.monotonic()  # no request waited when the task was taken
            options = {"is_repeated": task.attempts > 1} if task.name == DRAWS else {}
            self._handlers[task.name](*task.arguments, **options)
        self._queue.end(task)

    def _serve_requests(self, is_requested: bool | None) -> None:  # noqa: FBT001 # the only argument
        """Draw one lane group of requests if any wait; look once per `LOOK_SECONDS` if the caller does not know."""
        now = time.monotonic()
        if is_requested is None and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        if is_requested is not False and (batch := self._queue.batch(LANES)) is not None:
            self._draw(batch)

    def _draw(self, batch: DrawBatch) -> None:
        """Draw requests and the rest of the first one's lane group, which costs next to nothing."""
        arrays_id, latest, made = self._latest
        if batch.arrays_id == arrays_id and latest.issuperset(batch.keys) and time.monotonic() < made + LATEST_SECONDS:
            self._writer.submit(partial(self._queue.publish, batch, batch.keys, "drawn"))  # after they are cached
            return
        with observe_requests(self._stores, batch.metadata):
            try:
                posterior = self._posterior(batch)
                if posterior is None:
                    self._queue.publish(batch, batch.keys, "job")
                    return
            except ProblemError as error:
                self._refuse(batch, batch.keys, error)
                return
            keys = list(dict.fromkeys([*batch.keys, *lane_group(batch.keys[0])]))
            keys = keys[: max(len(batch.keys), group_size(posterior))]
            for group in [keys], [[key] for key in batch.keys]:
                if self._drew(batch, posterior, group):
                    return

    def _drew(self, batch: DrawBatch, posterior: Posterior, groups: Sequence[Sequence[DrawKey]]) -> bool:
        """Draw groups of keys one after the other; return False if the only one of several keys fails.

        A draw that fails by itself is refused: the other clients' draws of its batch are not.
        """
        for keys in groups:
            try:
                draws, seconds = make_draws(posterior, keys)
            except (redis.RedisError, JobTimeoutException):
                raise
            except Exception as error:  # noqa: BLE001 # logged, and sent to the request
                if len(keys) > 1:
                    return False
                self._refuse(batch, keys, error)
            else:
                self._latest = (batch.arrays_id, frozenset(keys), time.monotonic())
                self._writer.submit(partial(self._finish, batch, keys, draws, seconds))
        return True

    def _posterior(self, batch: DrawBatch) -> Posterior | None:
        """Return the posterior of a batch; None if it must be fitted again, which is a job's work.

        Raises ``posterior-not-found``, ``other-numbers``.
        """
        posterior = RESIDENT.get(batch.arrays_id)
        if posterior is None:
            record = self._stores.posteriors.fetch(batch.posterior)
            require_own_numbers(f"Posterior {record.id}", record.numbers)
            if record.arrays_id == batch.arrays_id:
                with suppress(ProblemError):  # of a store; a job fits the posterior again
                    posterior = self._stores.posteriors.load(record.id, record.arrays_sha256)
            if posterior is not None:
                RESIDENT.keep(batch.arrays_id, posterior, record.nbytes)
        return posterior

    def _finish(self, batch: DrawBatch, keys: Sequence[DrawKey], draws: Sequence[Draw], seconds: float) -> None:
        """Cache and publish the requested draws, then cache large others; remove all if their posterior was deleted.

        If a server does not answer, the requests are sent again.
        """
        requested = sum(key in batch.keys for key in keys)  # they are the first ones
        if sum(draw.embedding.nbytes for draw in draws[requested:]) < TOGETHER_BYTES:
            requested = len(keys)
        try:
            self._store(batch, keys[:requested], draws[:requested], seconds)
            if others := keys[requested:]:
                with suppress(ProblemError):
                    store_draws(self._stores.draws, batch.arrays_id, others, draws[requested:], seconds, prepare=[])
            if not self._stores.posteriors.exists(batch.posterior):
                self._latest = NO_GROUP
                RESIDENT.drop(batch.arrays_id)
                self._stores.posteriors.forget(batch.posterior)
        except redis.RedisError as error:
            self._latest = NO_GROUP
            log.warning("Draws of %s are lost: %s", batch.posterior, error)

    def _store(self, batch: DrawBatch, keys: Sequence[DrawKey], draws: Sequence[Draw], seconds: float) -> None:
        """Cache and publish draws; if one is refused, each by itself."""
        try:
            store_draws(self._stores.draws, batch.arrays_id, keys, draws, seconds)
        except ProblemError as error:
            if len(keys) == 1:
                self._refuse(batch, keys, error)
                return
            for key, draw in zip(keys, draws, strict=True):
                self._store(batch, [key], [draw], seconds)
        else:
            self._queue.publish(batch, keys, "drawn")

    def _refuse(self, batch: DrawBatch, keys: Sequence[DrawKey], error: Exception) -> None:
        """Publish the problem that ended requests."""
        self._latest = NO_GROUP
        problem = problem_of(error)
        if problem.is_internal:
            log.error("Draws of %s failed", batch.posterior, exc_info=error)
        self._queue.publish(batch, keys, "refused", problem)

    def _report(self, **work: str) -> None:
        """Report work in progress to the parent, or none."""
        os.write(self._reports, json.dumps(work).encode() + b"\n")
        self._reported = time.monotonic() if work else float("-inf")

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._is_stopping = True
        if self._is_waiting:
            raise _StopWaiting
