"""The sampler: a process of a worker that answers requests for single draws.

The sampler keeps posteriors, compiled code and connections in memory, and computes up to `LANES` draws of one posterior
together, in SIMD lanes. A sampler may be killed at any moment, and a timer kills a sampler that hangs. A request
stays in its stream until it is answered, so the successor of a killed sampler makes the draws of all unanswered
requests, one at a time.
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

WAIT_SECONDS = 2.0  # longest single wait for requests, which must be shorter than the socket timeout
FLUSH_SECONDS = 1.0  # pause between two writes of counters to Redis
# A sampler is replaced when its memory has grown by more than `GROWTH` times the bytes of posteriors that it may keep,
# or `GROWTH` times this many bytes if this is more.
MIN_GROWTH_BYTES = 2**28
RETRY_DELAY_SECONDS = 0.5  # pause between two attempts to reach a server
IDLE_SECONDS = 300.0  # a posterior that was not used for this long is dropped from memory
# A sampler is killed if draws that are computed together take longer: draws that are expected to take more than a
# second are made by jobs, so such a sampler hangs.
HUNG_SECONDS = 15.0
# A sampler reads requests ahead, so that it can compute `LANES` draws of one posterior together: at most this many
# seconds of work, and this many times `LANES` requests.
AHEAD_SECONDS, MAX_AHEAD = 0.1, 8
# The draws that were computed last are not computed again for requests that arrive within this many seconds. If such a
# draw is still being written to the cache, the request is answered after the draw has been written.
LATEST_SECONDS = 1.0

SOLVER_FACTOR = 4  # memory of a posterior with its solver, as a multiple of the bytes of the posterior's arrays

# Stands for "none" in place of the draws that were computed last, which are described by the id of their posterior,
# their addresses, and the monotonic time.
NO_GROUP: tuple[str, frozenset[DrawAddress], float] = ("", frozenset(), 0.0)

log = logging.getLogger(__name__)


class _StopWaiting(BaseException):
    """Raised by the signal handler if a signal to stop arrives while the sampler waits for requests."""


class ResidentPosteriors:
    """Posteriors that a sampler, a process that makes single draws, keeps in memory.

    Beyond a limit, the least recently used posteriors are dropped.

    Parameters
    ----------
    max_bytes
        Limit on the memory of all posteriors together. The posterior that was used last is kept even beyond the limit.

    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._posteriors: dict[str, tuple[Posterior, int, float]] = {}  # with bytes, and time of last use; oldest first

    def get(self, id_: str) -> Posterior | None:
        """Return a posterior by its id, and record that it was used now; None if the posterior is not in memory."""
        if (kept := self._posteriors.pop(id_, None)) is None:
            return None
        posterior, nbytes, _ = kept
        self._posteriors[id_] = posterior, nbytes, time.monotonic()
        return posterior

    def keep(self, id_: str, posterior: Posterior, nbytes: int) -> None:
        """Keep a posterior whose arrays have `nbytes`; drop the least recently used posteriors beyond the limit."""
        self._posteriors[id_] = posterior, SOLVER_FACTOR * nbytes, time.monotonic()
        for oldest in list(self._posteriors)[:-1]:
            if sum(size for _, size, _ in list(self._posteriors.values())) <= self._max_bytes:
                break
            self.drop(oldest)

    def drop_idle(self) -> None:
        """Drop posteriors that were not used for `IDLE_SECONDS`. Any thread may call this."""
        for id_, (_, _, used) in list(self._posteriors.items()):
            if used < time.monotonic() - IDLE_SECONDS:
                self.drop(id_)

    def drop(self, id_: str) -> None:
        """Drop a posterior, if it is in memory. Any thread may call this."""
        self._posteriors.pop(id_, None)


class SamplerLoop:
    """The main loop of a sampler: a process that reads requests for single draws, and makes and caches these draws.

    Parameters
    ----------
    name
        Name of the sampler in the consumer group; its successor has the same name.
    is_busy
        Memory that is shared with the parent; its one byte is 1 while there are requests.

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
        self._written: Future[object] | None = None  # the last call that was submitted to the writer thread
        self._latest = NO_GROUP  # the draws that were computed last
        self._waiting = RequestsInHand()
        self._ahead = LANES  # number of requests to read ahead
        self._slow: set[str] = set()  # ids of posteriors with slow draws, whose requests become jobs
        self._resident = ResidentPosteriors(resident_limit(stores.settings))
        self._max_bytes = resident_bytes() + GROWTH * max(resident_limit(stores.settings), MIN_GROWTH_BYTES)

    def run(self) -> None:
        """Answer requests until SIGTERM or the parent's end; after SIGTERM, still answer the requests already read."""
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
        """Read requests, make up to `LANES` of the requested draws, and do the periodic work that is due."""
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
        """Read more requests, unless those in hand suffice to compute `LANES` draws of one posterior together.

        If there are no requests in hand, wait for one.
        """
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
        """Answer requests that samplers have left when they ended, one at a time, because one may crash this sampler.

        With `of_predecessor`, these are the requests of this sampler's predecessor; otherwise, the requests that any
        sampler has held for more than `LEASE_SECONDS`.
        """
        for request in self._stream.claim_abandoned(of_predecessor=of_predecessor):
            self._draw(DrawBatch([request]))
            self._wait_until_written()

    def _retire_if_large(self) -> None:
        """Stop this sampler if its process has grown too large; the parent then starts a successor."""
        if (size := resident_bytes()) > self._max_bytes:
            log.warning("The sampler takes %s bytes of memory, and is replaced", f"{size:,}")
            self._is_stopping = True

    def _draw(self, batch: DrawBatch) -> None:
        """Answer a batch of requests.

        If the draws were among those that this sampler computed last, nothing is drawn: the answer is that the draws
        are in the cache. If draws of this posterior are slow, the answer is that a job should make them.
        """
        posterior, latest, drawn_at = self._latest
        is_recent = time.monotonic() < drawn_at + LATEST_SECONDS
        if batch.posterior == posterior and latest.issuperset(batch.keys) and is_recent:
            self._submit(partial(self._stream.finish, batch, "drawn"))  # runs after the draws are cached
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
        seconds = time.thread_time() - began  # processor time of this thread, so that a busy machine does not matter
        self._ahead = LANES * max(1, min(MAX_AHEAD, int(AHEAD_SECONDS / max(seconds, 1e-6))))
        if seconds > QUICK_SECONDS:
            self._slow.add(batch.posterior)

    def _draw_uncached(self, batch: DrawBatch) -> None:
        """Make the draws of a batch; if making all together fails, make them one by one.

        Draws are computed in groups of `LANES`, one in each SIMD lane. Lanes that the batch leaves free are filled with
        draws of neighboring indices, which cost little and are cached for later requests. Raises MemoryError, and
        `ProblemError` (``posterior-not-found``, ``posterior-damaged``, ``other-numbers``, ``store-unavailable``).
        """
        posterior = self._posterior(batch.posterior)
        size = group_size(posterior)
        keys = list(dict.fromkeys([*batch.keys, *lane_group(batch.keys[0], size)]))[: max(len(batch.keys), size)]
        if not self._has_drawn(batch, posterior, keys):
            for key in batch.keys:
                self._has_drawn(batch.select([key]), posterior, [key])

    def _has_drawn(self, batch: DrawBatch, posterior: Posterior, keys: Sequence[DrawAddress]) -> bool:
        """Make the draws `keys`, and let the writer thread answer the batch; return whether the batch is finished.

        `keys` begins with the draws that the batch asks for; draws that were not asked for yet may follow. If several
        draws fail together, nothing is answered, and False is returned, so that the caller tries each draw alone. If a
        single draw fails, its requests are refused, and True is returned.
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
        """Return a posterior from memory or storage.

        Raises `ProblemError` (``posterior-not-found``, ``posterior-damaged``, ``other-numbers``,
        ``store-unavailable``).
        """
        posterior = self._resident.get(id_)
        if posterior is None:
            record = self._stores.posteriors.fetch(id_)
            require_numbers(record.id, record.numbers)
            posterior = self._stores.posteriors.load(record)
            self._resident.keep(id_, posterior, record.nbytes)
        return posterior

    def _submit(self, call: Callable[[], object]) -> None:
        """Wait until the writer thread's previous call has ended, raise that call's error if any, and start `call`."""
        self._wait_until_written()
        self._written = self._writer.submit(copy_context().run, call)

    def _wait_until_written(self) -> None:
        if (written := self._written) is not None:
            self._written = None
            written.result()

    def _finish(self, batch: DrawBatch, keys: Sequence[DrawAddress], draws: Sequence[Draw], seconds: float) -> None:
        """Publish the answers to a batch, and cache the draws.

        The answers contain the draws if these are small, and are then published before the draws are cached. API
        processes read large draws from the cache, so the answers are then published after the draws are cached. If a
        server does not answer, the requests stay in their streams, and are claimed again after `LEASE_SECONDS`.
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
        """Write the counters to Redis, and drop idle posteriors."""
        self._resident.drop_idle()
        self._stores.counts.flush()

    def _refuse(self, batch: DrawBatch, error: Exception) -> None:
        """Answer the requests of a batch with the problem that describes an error, in place of draws."""
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
