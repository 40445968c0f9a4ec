"""Request a draw from an executor without a job, and wait for it."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from glle_engine.linalg import LANES
from service.submission.waiting import WAITS
from worker.base.problems import Problem, ProblemError
from worker.connections.event_loop import on_loop
from worker.jobs.executor_queue import waited_name
from worker.records.cache_entry import Entry
from worker.records.draws import DrawKey
from worker.records.job import SHORT_SECONDS
from worker.records.tenants import DEFAULT
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

AGAIN_SECONDS = 2.0  # without an answer, after which a request is sent again: its executor may be gone
MOST_SENT = 3  # then a job takes over, which repeats lost work and reports what prevents it


async def requested_draw(
    stores: Stores, record: PosteriorRecord, key: DrawKey, cached: Callable[[], Entry | None], wait: float
) -> Entry | None:
    """Return a draw that an executor makes within `wait` seconds, or None if a job must make it.

    Identical requests of a process share one request. A draw that takes long is a job's, because a client can cancel a
    job. So is one whose posterior must be fitted again, and any if too many requests of the tenant wait already.

    Raises
    ------
    ProblemError
        Of the draw, such as ``no-convergence``.

    """
    until = time.monotonic() + min(wait, stores.settings.max_wait)
    tenant, name = stores.tenant or DEFAULT, waited_name(record, key)
    if not wait or LANES * record.draw_seconds > SHORT_SECONDS or not WAITS.has_room(tenant, stores.settings.max_waits):
        return None
    with WAITS.counted(tenant), stores.drawn.of(name) as answer:
        is_first = stores.drawn.waiting(name) == 1
        await stores.drawn.subscribed()
        for sent in range(MOST_SENT):
            if is_first or sent:
                await on_loop(stores.requests.send, record, key, again=bool(sent))
            with suppress(TimeoutError):
                await asyncio.wait_for(answer.wait(), min(AGAIN_SECONDS, until - time.monotonic()))
            outcome = answer.outcome
            if outcome is not None and outcome["outcome"] == "job":
                return None
            if outcome is not None and outcome["outcome"] == "refused":
                raise ProblemError(Problem.from_dict(outcome["problem"]))
            if (entry := await on_loop(cached)) is not None:
                return entry
            if stores.drawn.is_over or time.monotonic() >= until:
                return None
            answer.clear()
    return None
