"""Request a draw from a sampler without a job, and wait for it."""

from weakref import WeakValueDictionary

from service.submission.waiting import has_room, wait_for_outcome
from worker.base.problems import ProblemError
from worker.jobs.draw_stream import DrawAnswer, waited_name
from worker.observability.request_context import task_metadata
from worker.records.cache_entry import Entry
from worker.records.draws import QUICK_SECONDS, DrawAddress
from worker.records.ids import DEFAULT
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

MAX_SENT = 3  # times that a lost request is sent; then a job takes over


class _Sent(list[str]):
    """The entries of an awaited draw, of all requests for it in this process; the last is empty while it is sent."""


_SENT: WeakValueDictionary[str, _Sent] = WeakValueDictionary()


async def requested_draw(stores: Stores, record: PosteriorRecord, key: DrawAddress, wait: float) -> Entry | None:
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
    if not wait or record.single_draw_seconds > QUICK_SECONDS or not has_room(tenant):
        return None
    sent = _SENT.setdefault(name, _Sent())

    async def look(answer: DrawAnswer | None) -> tuple[Entry | None, bool]:
        """Return the draw, if it is there, and whether waiting is over; send the request unless it is pending."""
        if answer is not None and answer.problem is not None:
            raise ProblemError(answer.problem)
        if answer is not None and (answer.entry is not None or answer.outcome == "job"):
            return answer.entry, True
        if sent:
            if not sent[-1] or await stores.requests.is_pending(sent[-1]):
                return None, False
            if (entry := await stores.draws.read(record.arrays_id, key)) is not None:
                return entry, True
        if len(sent) == MAX_SENT:
            return None, True
        await _send(stores, name, sent)
        return None, False

    return await wait_for_outcome(stores.drawn, name, look, wait, tenant=tenant)


async def _send(stores: Stores, name: str, sent: list[str]) -> None:
    """Send a request, and add its entry to those of the draw."""
    sent.append("")
    try:
        sent[-1] = await stores.requests.send(name, task_metadata())
    except BaseException:
        sent.pop()
        raise
