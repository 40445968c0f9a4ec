"""Request a draw from a sampler without a job, and wait for it."""

from collections.abc import Callable

from service.submission.waiting import WAITS, wait_for_outcome
from worker.base.problems import ProblemError
from worker.connections.event_loop import on_loop
from worker.jobs.draw_stream import DrawAnswer, waited_name
from worker.observability.request_context import task_metadata
from worker.records.cache_entry import Entry
from worker.records.draws import QUICK_SECONDS, DrawAddress
from worker.records.ids import DEFAULT
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

MAX_SENT = 3  # times that a lost request is sent; then a job takes over
_SENT: dict[str, list[str]] = {}  # the entries of each awaited draw; the last is empty while it is sent


async def requested_draw(
    stores: Stores, record: PosteriorRecord, key: DrawAddress, cached: Callable[[], Entry | None], wait: float
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
    tenant, name = stores.tenant or DEFAULT, waited_name(record, key)
    if not wait or record.single_draw_seconds > QUICK_SECONDS or not WAITS.has_room(tenant):
        return None
    request = _Request(stores, name, cached)
    try:
        return await wait_for_outcome(stores.drawn, name, request.look, wait, tenant=tenant)
    finally:
        if not stores.drawn.waiting(name):
            _SENT.pop(name, None)


class _Request:
    """A request for a draw, whose entries all requests of this process for that draw share."""

    def __init__(self, stores: Stores, name: str, cached: Callable[[], Entry | None]) -> None:
        self._stores = stores
        self._name = name
        self._cached = cached
        self._sent = _SENT.setdefault(name, [])

    async def look(self, answer: DrawAnswer | None) -> tuple[Entry | None, bool]:
        """Return the draw, if it is there, and whether waiting is over; send the request unless it is pending."""
        if answer is not None and answer.problem is not None:
            raise ProblemError(answer.problem)
        if answer is not None and (answer.entry is not None or answer.outcome == "job"):
            return answer.entry, True
        if self._sent:
            if not self._sent[-1] or await on_loop(self._stores.requests.is_pending, self._sent[-1]):
                return None, False
            if (entry := await on_loop(self._cached)) is not None:
                return entry, True
        if len(self._sent) == MAX_SENT:
            return None, True
        self._sent.append("")
        try:
            self._sent[-1] = await on_loop(self._stores.requests.send, self._name, task_metadata())
        except BaseException:
            self._sent.pop()
            raise
        return None, False
