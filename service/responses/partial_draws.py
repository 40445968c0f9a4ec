"""Partial result of a running draws job: each draw as soon as it is complete, in order, as npy."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from starlette.concurrency import run_in_threadpool

from service.encoding.aborted import ResponseAbortedError
from service.encoding.arrays import NPY, Stack
from service.responses.streaming import LimitedStreamingResponse, job_states
from service.submission.jobs import reopen_job
from worker.records.draws import batch_end
from worker.records.ids import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.encoding.arrays import Dtype
    from service.responses.streaming import StreamLimiter
    from worker.jobs.store import Job
    from worker.records.cache_entry import Entry
    from worker.records.draws import DrawsSpec
    from worker.stores import Stores

_ATTEMPTS = 5  # at draws that are evicted before they are sent


def partial_npy_response(
    here: Stores, limiter: StreamLimiter, job: Job, spec: DrawsSpec, dtype: Dtype, headers: dict[str, str]
) -> LimitedStreamingResponse:
    """Return the embeddings as npy in a response that ends with the job, or raise ``too-many-streams``."""
    stack = Stack(spec.shape[:-2], (spec.n, spec.p), np.dtype(dtype), ())
    header = stack.npy_header()

    async def body() -> AsyncIterator[bytes]:
        yield header
        async for entry in _completed_draws(here, limiter, job, spec):
            yield np.ascontiguousarray(entry.arrays["embedding"], stack.dtype).tobytes()

    fields = {"Content-Length": str(len(header) + stack.nbytes), "X-Accel-Buffering": "no", **headers}  # not held back
    return LimitedStreamingResponse(limiter, here.tenant or DEFAULT, body, media_type=NPY, headers=fields)


async def _completed_draws(here: Stores, limiter: StreamLimiter, job: Job, spec: DrawsSpec) -> AsyncIterator[Entry]:
    """Yield all draws of a job with numeric scales in order, each as soon as it and those before it are complete.

    A draw evicted before it is sent is computed again. No thread waits meanwhile. Raise `ResponseAbortedError` if the
    job fails or is cancelled, draws are evicted faster than they are sent, or the process shuts down.
    """
    arrays_id = await run_in_threadpool(here.posteriors.arrays_id, job.subject)
    keys = list(spec.draws())
    sent = 0
    for _ in range(_ATTEMPTS):
        async for now in job_states(here, limiter, job):
            if now.is_open and now.status != "cancelling":
                complete = await run_in_threadpool(_complete, here, now, spec)
            elif now.status != "succeeded":
                raise ResponseAbortedError(f"Job {job.id} is {now.status}; {sent} of its {spec.total} draws were sent.")
            else:
                complete = spec.total
            while sent < complete:
                part = keys[sent : batch_end(keys, sent, complete, 8 * spec.n * spec.p)]
                entries = list(takewhile(bool, await run_in_threadpool(here.draws.get_many, arrays_id, part)))
                for entry in entries:
                    assert entry is not None
                    yield entry
                    sent += 1
                if len(entries) < len(part):  # evicted; computed again once the job has ended
                    break
        if sent == spec.total:
            return
        if limiter.is_stopped:
            raise ResponseAbortedError(
                f"The service stops; {sent} of the {spec.total} draws of job {job.id} were sent."
            )
        job = await run_in_threadpool(reopen_job, here, job)
    raise ResponseAbortedError(
        f"Draw {sent} of job {job.id} is evicted again and again; the cache is too small for its use."
    )


def _complete(here: Stores, job: Job, spec: DrawsSpec) -> int:
    """Return the number of complete draws before the first gap."""
    complete = 0
    for shard, count in enumerate(here.jobs.shard_counts(job)):
        complete += count
        if count < spec.shard_size(shard):
            break
    return complete
