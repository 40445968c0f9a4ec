"""The sampler: a resident process of a worker that draws what clients request one by one.

It keeps posteriors, compiled code and connections, and draws the requests of a posterior as lane groups. It may be
killed at any moment, and the kernel ends it if it hangs. A request stays in its stream until it is answered, so the
successor of a killed sampler draws each of its requests again, one at a time.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

import redis

from glle_engine.linalg import LANES
from worker.base.memory import GROWTH, limit_work, resident_bytes, resident_limit
from worker.base.problems import ProblemError, problem_of
from worker.base.versions import require_numbers
from worker.execution.draws import draw_entries, group_size, lane_group, make_draws
from worker.execution.telemetry import observe, record_stages, stage
from worker.jobs.draw_stream import (
    LEASE_SECONDS,
    MAX_SENT_BYTES,
    DrawBatch,
    DrawStream,
    RequestsInHand,
)
from worker.records.draws import QUICK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from mmap import mmap
    from types import FrameType

    from glle_engine import Draw, Posterior
    from worker.records.draws import DrawAddress
    from worker.stores import Stores

WAIT_SECONDS = 2.0  # longest wait for requests at a time; less than the timeout of a call
FLUSH_SECONDS = 1.0  # pause between two writes of counts
MIN_BYTES = 2**28
RETRY_DELAY_SECONDS = 0.5  # pause between two attempts to reach a server
IDLE_SECONDS = 300.0  # a posterior that was not used this long leaves the memory
# A sampler ends if a lane group takes longer; draws that are expected to take more than a second are jobs.
HUNG_SECONDS = 15.0
# Seconds of work, and lane groups, to claim ahead, so that requests of several posteriors fill lane groups.
AHEAD_SECONDS, MAX_AHEAD = 0.1, 8
# Requests for draws of the latest lane group may arrive for this long, if they were sent before the draws were cached.
LATEST_SECONDS = 1.0

SOLVER_FACTOR = 4  # bytes of a posterior with its solver, relative to the bytes of its arrays

NO_GROUP: tuple[str, frozenset[DrawAddress], float] = ("", frozenset(), 0.0)

log = logging.getLogger(__name__)


class _StopWaiting(BaseException):
    """The signal to stop arrived while the sampler waited for requests."""


class ResidentPosteriors:
    """The posteriors in memory that were used last, by their ids.

    Parameters
    ----------
    max_bytes
        Limit for all posteriors together; the posterior that was used last is always kept.

    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._posteriors: dict[str, tuple[Posterior, int, float]] = {}  # bytes, time of last use; in this order

    def get(self, id_: str) -> Posterior | None:
        """Return a posterior, or None."""
        if (kept := self._posteriors.pop(id_, None)) is None:
            return None
        posterior, nbytes, _ = kept
        self._posteriors[id_] = posterior, nbytes, time.monotonic()
        return posterior

    def keep(self, id_: str, posterior: Posterior, nbytes: int) -> None:
        """Keep a posterior whose arrays have `nbytes`; drop the least recently used ones."""
        self._posteriors[id_] = posterior, SOLVER_FACTOR * nbytes, time.monotonic()
        for oldest in list(self._posteriors)[:-1]:
            if sum(size for _, size, _ in list(self._posteriors.values())) <= self._max_bytes:
                break
            self.drop(oldest)

    def drop_idle(self) -> None:
        """Drop posteriors that were not used for `IDLE_SECONDS`, such as deleted ones. Any thread may call it."""
        for id_, (_, _, used) in list(self._posteriors.items()):
            if used < time.monotonic() - IDLE_SECONDS:
                self.drop(id_)

    def drop(self, id_: str) -> None:
        """Drop a posterior, if it is kept. Any thread may call it."""
        self._posteriors.pop(id_, None)


class SamplerLoop:
    """The loop of a sampler.

    Parameters
    ----------
    name
        Its name in the consumer group, which its successor has as well.
    is_busy
        One byte that the parent reads: 1 while there are requests.

    """

    def __init__(self, stores: Stores, name: str, is_busy: bytearray | mmap) -> None:
        self._stores = stores
        self._name = name
        self._stream = DrawStream(stores.cache.client, name)
        self._is_busy = is_busy
        self._parent = os.getppid()
        self._is_waiting = False
        self._is_stopping = False
        self._flushed = time.monotonic()
        self._claimed = time.monotonic()
        self._writer = ThreadPoolExecutor(1, "finish-draws")
        self._written: Future[object] | None = None  # the last call of the writer
        self._latest = NO_GROUP  # posterior, draws, monotonic time
        self._waiting = RequestsInHand()
        self._ahead = LANES  # number of requests to claim ahead
        self._slow: set[str] = set()  # posteriors whose draws took longer than expected: their requests become jobs
        self._resident = ResidentPosteriors(resident_limit(stores.settings))
        self._max_bytes = resident_bytes() + GROWTH * max(resident_limit(stores.settings), MIN_BYTES)

    def run(self) -> None:
        """Draw until SIGTERM, and end the work in progress."""
        limit_work(self._stores.settings.method_bytes)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        is_first = True
        with self._writer:
            while (self._waiting or not self._is_stopping) and os.getppid() == self._parent:
                try:
                    if is_first:
                        self._draw_abandoned(of_predecessor=True)
                        is_first = False
                    self._step()
                except redis.RedisError as error:
                    log.warning("The sampler waits for a Redis server: %s", error)
                    time.sleep(RETRY_DELAY_SECONDS)
                except _StopWaiting:
                    break
            self._stores.stop_waiting()
            self._wait_until_written()
            with suppress(redis.RedisError):
                self._stream.leave()
            self._flush()

    def _step(self) -> None:
        """Read requests, waiting for one, and draw a lane group."""
        self._read()
        self._is_busy[0] = bool(self._waiting)
        if self._waiting:
            self._draw(self._waiting.pop(LANES))
        now = time.monotonic()
        if now - self._claimed > LEASE_SECONDS:
            self._claimed = now
            self._draw_abandoned(of_predecessor=False)
        if now - self._flushed > FLUSH_SECONDS:
            self._flushed = now
            self._submit(self._flush)
            self._retire_if_large()

    def _read(self) -> None:
        """Read up to `_ahead` requests, unless a lane group is waiting; a busy server may answer a later read late."""
        if self._is_stopping or len(self._waiting) >= self._ahead:
            return
        if self._waiting.next_size >= LANES:
            return
        self._is_waiting = not self._waiting
        try:
            seconds = WAIT_SECONDS if self._is_waiting else 0.0
            self._waiting.add(self._stream.read(self._ahead, seconds))
        finally:
            self._is_waiting = False

    def _draw_abandoned(self, *, of_predecessor: bool) -> None:
        """Draw the requests of a sampler that is gone one at a time, because one of them may have ended it."""
        for request in self._stream.claim_abandoned(of_predecessor=of_predecessor):
            self._draw(DrawBatch([request]))
            self._wait_until_written()

    def _retire_if_large(self) -> None:
        """End after this lane group if the process has grown beyond its posteriors; the parent replaces it."""
        if (size := resident_bytes()) > self._max_bytes:
            log.warning("The sampler takes %s bytes of memory, and is replaced", f"{size:,}")
            self._is_stopping = True

    def _draw(self, batch: DrawBatch) -> None:
        """Draw requests and the rest of the first one's lane group, which costs next to nothing."""
        posterior, latest, drawn_at = self._latest
        is_recent = time.monotonic() < drawn_at + LATEST_SECONDS
        if batch.posterior == posterior and latest.issuperset(batch.keys) and is_recent:
            self._submit(partial(self._stream.finish, batch, "drawn"))  # answered after the draws are cached
            return
        if batch.posterior in self._slow:
            self._stream.finish(batch, "job")
            return
        began = time.thread_time()
        with observe(self._stores, batch.requests[0].metadata, kind="draws"):
            record_stages({"queued": batch.seconds_since_sent()})
            try:
                self._draw_uncached(batch)
            except redis.RedisError:
                raise
            except Exception as error:  # noqa: BLE001 # logged, and sent to the requests
                self._resident.drop(batch.posterior)
                self._refuse(batch, error)
        seconds = time.thread_time() - began  # processor time of this thread, whatever else the machine does
        self._ahead = LANES * max(1, min(MAX_AHEAD, int(AHEAD_SECONDS / max(seconds, 1e-6))))
        if seconds > QUICK_SECONDS:
            self._slow.add(batch.posterior)

    def _draw_uncached(self, batch: DrawBatch) -> None:
        """Draw requests; raises as `_posterior`, and MemoryError."""
        posterior = self._posterior(batch.posterior)
        size = group_size(posterior)
        keys = list(dict.fromkeys([*batch.keys, *lane_group(batch.keys[0], size)]))[: max(len(batch.keys), size)]
        if not self._has_drawn(batch, posterior, keys):
            for key in batch.keys:
                self._has_drawn(batch.select([key]), posterior, [key])

    def _has_drawn(self, batch: DrawBatch, posterior: Posterior, keys: Sequence[DrawAddress]) -> bool:
        """Draw a lane group, starting with the requested draws; return False if it fails.

        A draw that fails by itself is refused: the other clients' draws of its batch are not.
        """
        signal.setitimer(signal.ITIMER_REAL, HUNG_SECONDS)  # SIGALRM ends the process, also within compiled code
        try:
            draws, seconds = make_draws(posterior, keys)
        except redis.RedisError:
            raise
        except Exception as error:  # noqa: BLE001 # logged, and sent to the request
            if len(keys) == 1:
                self._refuse(batch, error)
            return len(keys) == 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._latest = (batch.posterior, frozenset(keys), time.monotonic())
        self._stores.counts.add("sampler_draws", "requested", increment=len(batch.keys))
        self._stores.counts.add("sampler_draws", "drawn", increment=len(keys))
        self._submit(partial(self._finish, batch, keys, draws, seconds))
        return True

    def _posterior(self, id_: str) -> Posterior:
        """Return a posterior; raises ``posterior-not-found``, ``posterior-damaged``, ``other-numbers``."""
        posterior = self._resident.get(id_)
        if posterior is None:
            record = self._stores.posteriors.fetch(id_)
            require_numbers(record.id, record.numbers)
            posterior = self._stores.posteriors.load(record)
            self._resident.keep(id_, posterior, record.nbytes)
        return posterior

    def _submit(self, call: Callable[[], object]) -> None:
        """Run a call in another thread once the previous call has ended; raises the error of the previous call."""
        self._wait_until_written()
        self._written = self._writer.submit(copy_context().run, call)

    def _wait_until_written(self) -> None:
        if (written := self._written) is not None:
            self._written = None
            written.result()

    def _finish(self, batch: DrawBatch, keys: Sequence[DrawAddress], draws: Sequence[Draw], seconds: float) -> None:
        """Publish and cache draws: an answer that carries them does not wait for the cache.

        A repeated request waits until the draws are cached (`_draw`). If a server does not answer, unanswered requests
        stay in their streams, and are drawn again after their lease.
        """
        try:
            entries = draw_entries(keys, draws, seconds)
            is_sent = entries[keys[0]].nbytes <= MAX_SENT_BYTES  # all draws of a posterior have the same size
            if is_sent:
                self._stream.finish(batch, "drawn", entries=entries)
            with stage("caching"):
                self._stores.cache.put_draws(batch.posterior, entries)
            if not is_sent:
                self._stream.finish(batch, "drawn")
        except ProblemError as error:
            self._refuse(batch, error)
        except redis.RedisError as error:
            self._latest = NO_GROUP
            log.warning("Draws of %s are lost: %s", batch.posterior, error)

    def _flush(self) -> None:
        """Write the counts, and drop idle posteriors."""
        self._resident.drop_idle()
        self._stores.counts.flush()

    def _refuse(self, batch: DrawBatch, error: Exception) -> None:
        """Publish the problem that ended requests."""
        self._latest = NO_GROUP
        problem = problem_of(error)
        if problem.is_internal:
            log.error("Draws of %s failed", batch.posterior, exc_info=error)
        self._stream.finish(batch, "refused", problem)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._is_stopping = True
        if self._is_waiting:
            raise _StopWaiting
