"""Request a draw from a sampler without a job, and wait for it."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from service.submission.waiting import MAX_WAIT_SECONDS, WAITS
from worker.base.problems import Problem, ProblemError
from worker.connections.event_loop import on_loop
from worker.jobs.draw_stream import waited_name
from worker.records.cache_entry import Entry
from worker.records.draws import QUICK_SECONDS, DrawKey
from worker.records.tenants import DEFAULT
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

LOOK_SECONDS = 2.0  # without an answer, after which a lost request is sent again
MAX_SENT = 3  # then a job takes over
_SENT: dict[str, str] = {}  # the entry of each awaited draw; empty while it is sent


async def requested_draw(
    stores: Stores, record: PosteriorRecord, key: DrawKey, cached: Callable[[], Entry | None], wait: float
) -> Entry | None:
    """Return a draw that a sampler makes within `wait` seconds, or None if a job must make it.

    Identical requests of a process share one request. A draw that takes more than `QUICK_SECONDS` is a job's, because
    a job is one task of a worker for long work, and a client can cancel it. So is one whose posterior must be fitted
    again, and any if too many requests of the tenant wait already.

    Raises
    ------
    ProblemError
        Of the draw, such as ``no-convergence``.

    """
    until = time.monotonic() + min(wait, MAX_WAIT_SECONDS)
    tenant, name = stores.tenant or DEFAULT, waited_name(record, key)
    if not wait or record.single_draw_seconds > QUICK_SECONDS or not WAITS.has_room(tenant):
        return None
    with WAITS.counted(tenant), stores.drawn.of(name) as answer:
        await stores.drawn.subscribed()
        sent = 0
        try:
            while True:
                if await _is_lost(stores, name):
                    if sent == MAX_SENT:
                        return None
                    await _send(stores, name, record, key)
                    sent += 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(answer.wait(), min(LOOK_SECONDS, until - time.monotonic()))
                if answer.outcome is not None and _is_for_a_job(answer.outcome):
                    return None
                if (entry := await on_loop(cached)) is not None:
                    return entry
                if stores.drawn.is_over or time.monotonic() >= until:
                    return None
                answer.clear()
        finally:
            if stores.drawn.waiting(name) == 1:
                _SENT.pop(name, None)


async def _is_lost(stores: Stores, name: str) -> bool:
    """Return whether no request for a draw is in the stream: none was sent, or the server has lost it."""
    entry = _SENT.get(name)
    return entry is None or (entry != "" and not await on_loop(stores.requests.is_pending, entry))


async def _send(stores: Stores, name: str, record: PosteriorRecord, key: DrawKey) -> None:
    _SENT[name] = ""  # other requests of this process wait for the same entry
    try:
        _SENT[name] = await on_loop(stores.requests.send, record, key)
    except BaseException:
        _SENT.pop(name, None)
        raise


def _is_for_a_job(outcome: Mapping[str, Any]) -> bool:
    """Return whether a job must make a draw; raise the problem of a refused one."""
    if outcome["outcome"] == "refused":
        raise ProblemError(Problem.from_dict(outcome["problem"]))
    return bool(outcome["outcome"] == "job")
