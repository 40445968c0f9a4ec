"""The result of a draws job before its end: each draw as it comes, in the order of the whole.

`as_they_come` is for every format; npy, whose header tells the shape of the whole, is made of it here.
"""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from starlette.concurrency import run_in_threadpool

from service.encoding.aborted import ResponseAbortedError
from service.encoding.arrays import NPY, Stack
from service.responses.streaming import LimitedStreamingResponse, states
from service.submission.dependencies import made_again
from worker.jobs.shards import counts
from worker.records.tenants import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.encoding.arrays import Dtype
    from service.responses.streaming import StreamLimiter
    from worker.jobs.store import Job
    from worker.records.draws import DrawsSpec
    from worker.storage.array_cache import Entry
    from worker.stores import Stores

READ_BYTES = 2**20  # of draws read in one round trip
_ATTEMPTS = 5  # to read what is evicted again and again


async def as_they_come(here: Stores, streams: StreamLimiter, job: Job, spec: DrawsSpec) -> AsyncIterator[Entry]:
    """Yield all draws of a job in their order, each as soon as it and those before it are made.

    One that was evicted before it was sent is made again. No thread is held while it waits.

    Parameters
    ----------
    spec
        What the job makes, at scales that are numbers.

    Raises
    ------
    ResponseAbortedError
        When the job fails or is cancelled, draws are evicted faster than they are sent, or the service stops.

    """
    drawn_from = await run_in_threadpool(here.posteriors.drawn_from, job.subject)
    keys = [key.cache_key(drawn_from) for key in spec.draws()]
    together = max(1, READ_BYTES // (8 * spec.n * spec.p))
    sent = 0
    for _ in range(_ATTEMPTS):
        async for now in states(here, streams, job):
            if now.is_open and now.status != "cancelling":
                made = await run_in_threadpool(_made, here, now, spec)
            elif now.status != "succeeded":
                raise ResponseAbortedError(f"Job {job.id} is {now.status}; {sent} of its {spec.total} draws were sent.")
            else:
                made = spec.total
            while sent < made:
                part = keys[sent : min(sent + together, made)]
                there = list(takewhile(bool, await run_in_threadpool(here.cache.get_many, part)))
                for entry in there:
                    assert entry is not None
                    yield entry
                    sent += 1
                if len(there) < len(part):  # evicted: made again when the job has ended
                    break
        if sent == spec.total:
            return
        if streams.stopped:
            raise ResponseAbortedError(
                f"The service stops; {sent} of the {spec.total} draws of job {job.id} were sent."
            )
        job = await run_in_threadpool(made_again, here, job)
    raise ResponseAbortedError(
        f"Draw {sent} of job {job.id} is evicted again and again; the cache is too small for its use."
    )


def partial_npy_response(
    here: Stores, streams: StreamLimiter, job: Job, spec: DrawsSpec, dtype: Dtype, headers: dict[str, str]
) -> LimitedStreamingResponse:
    """Return the embeddings as npy, which begins now and ends with the job.

    Raises
    ------
    ProblemError
        ``too-many-streams``.

    """
    stack = Stack(spec.shape[:-2], (spec.n, spec.p), np.dtype(dtype), ())
    header = stack.npy_header()
    length = len(header) + math.prod(stack.shape) * stack.dtype.itemsize

    async def body() -> AsyncIterator[bytes]:
        yield header
        async for entry in as_they_come(here, streams, job, spec):
            yield np.ascontiguousarray(entry.arrays["embedding"], stack.dtype).tobytes()

    fields = {"Content-Length": str(length), "X-Accel-Buffering": "no", **headers}  # no proxy is to hold it back
    return LimitedStreamingResponse(streams, here.tenant or DEFAULT, body, media_type=NPY, headers=fields)


def _made(here: Stores, job: Job, spec: DrawsSpec) -> int:
    """Return how many draws are there without a gap, from the first on."""
    made = 0
    for shard, count in enumerate(counts(here.client, job, spec.shards)):
        made += count
        if count < spec.shard_size(shard):
            break
    return made
