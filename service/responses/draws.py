"""Result of a draws job, complete or partial, read from the cache while it is sent: never in memory as a whole."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.concurrency import run_in_threadpool

from service.encoding.arrays import (
    CSV,
    JSON,
    NPY,
    Array,
    ResponseAbortedError,
    ResultTable,
    Stack,
    id_columns,
    matrix_columns,
    npy_header,
)
from service.encoding.arrow import ARROW
from service.encoding.result import (
    MEDIA,
    ArraysResult,
    Selection,
    immutable_headers,
    negotiate,
    scale_headers,
    unless_current,
)
from service.responses.streaming import LimitedStreamingResponse, job_states
from worker.records.draws import batch_end
from worker.records.ids import DEFAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from fastapi.responses import Response

    from service.encoding.arrays import Dtype
    from service.responses.analyses import ResultQuery
    from service.responses.streaming import StreamLimiter
    from worker.jobs.store import Job
    from worker.records.cache_entry import Entry
    from worker.records.draws import DrawAddress, DrawsSpec
    from worker.storage.array_cache import DrawCache
    from worker.stores import Stores

_TABLE_BYTES = 2**20  # of the rows of a table that are made at once
SMALL_BYTES = 12 * 2**20  # of a result that is read at once


def draws_response(cache: DrawCache, posterior: str, spec: DrawsSpec, query: ResultQuery) -> Response | None:
    """Return the requested embeddings of a draws job with numeric scales, or None if some were evicted.

    `posterior` is `PosteriorRecord.arrays_id`. A draw that is evicted before it is sent aborts the response; the next
    request computes it again. Raise `ProblemError`, for example ``not-acceptable`` or ``slice-out-of-range``.
    """
    media = negotiate(query.request, MEDIA)
    points = Selection.of(query.points, spec.n, "points")
    draws = Selection.of(query.draws, spec.count, "draws")
    positions = [scale * spec.count + draw for scale in range(len(spec.scales)) for draw in draws.positions]
    chosen = [spec.key(position) for position in positions]
    result = _DrawReader(cache, posterior, chosen, points, 8 * spec.n * spec.p)
    is_sent = "if-none-match" not in query.request.headers
    if (sha256 := result.sha256(is_sent=is_sent)) is None:
        return None
    scales = [float(scale) for scale in spec.scales]
    form = f"{spec.grid} {len(scales)}"  # the same draws may have several shapes
    noted = "notes" if query.notes and media == JSON else ""
    part = " ".join(filter(None, (form, draws.tag, points.tag, noted)))
    headers = immutable_headers(sha256, media, query.dtype, part) | scale_headers(scales, query.notes)

    def respond() -> Response:
        dtype, matrices = np.dtype(query.dtype), result.start()
        ids = query.ids() if media in {CSV, ARROW} else None
        lead = (*((len(scales),) if spec.grid else ()), len(draws))
        shape = (len(points), spec.p)
        # JSON has members behind the data, because every draw is read then.
        later: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("eigenvalues", lambda: np.reshape(result.eigenvalues, (*lead, spec.p)).tolist()),
            ("diagnostics", lambda: [head["diagnostics"] for head in result.heads]),
            ("draws", lambda: [{"index": head["index"], "scale": head["scale"]} for head in result.heads]),
            *([("notes", lambda: list(query.notes))] if query.notes else []),
        )
        return ArraysResult(
            arrays={
                "embeddings": Stack(lead, shape, dtype, matrices, result.embeddings, is_resident=bool(result.held))
            },
            stored={
                "eigenvalues": Stack(lead, (spec.p,), np.dtype("float64"), result.eigenvalues),
                "indices": np.array([spec.first + draw for draw in draws.positions], np.uint64),
                "scales": np.array(scales),
            },
            main="embeddings",
            members=((name, value()) for name, value in later),
            table=lambda: _table(result, matrices, spec, dtype, ids),
        ).response(media, query.dtype, headers)

    return unless_current(query.request, headers, respond)


@dataclass(frozen=True)
class _DrawReader:
    """Reader of some points of some draws, each of `nbytes`.

    `heads` and `eigenvalues` belong to the draws read so far. `announced` has the digests in the ETag; a draw that was
    evicted, or computed again with another digest, aborts the response. `held` has all draws of a small result.
    """

    cache: DrawCache
    posterior: str
    draws: Sequence[DrawAddress]
    points: Selection
    nbytes: int
    heads: list[dict[str, Any]] = field(default_factory=list)
    eigenvalues: list[Array] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    held: list[Entry] = field(default_factory=list)

    def sha256(self, *, is_sent: bool = False) -> str | None:
        """Return the digest of all draws for the ETag, or None if some are not cached.

        Read a small result that is likely to be sent (`is_sent`) at once and completely.
        """
        if is_sent and len(self.draws) * self.nbytes <= SMALL_BYTES:
            entries = self.cache.get_many(self.posterior, self.draws)
            self.held[:] = [entry for entry in entries if entry is not None]
            heads = [None if entry is None else entry.meta for entry in entries]
        else:
            heads = self.cache.heads(self.posterior, self.draws)
        self.announced[:] = [head["sha256"] for head in heads if head is not None]
        if len(self.announced) < len(heads):
            return None
        return hashlib.sha256("".join(self.announced).encode()).hexdigest()

    def start(self) -> Iterator[Array]:
        """Return all embeddings after reading the first, so that its errors precede the response."""
        matrices = self.embeddings()
        return chain(list(islice(matrices, 1)), matrices)

    def embeddings(self, start: int = 0) -> Iterator[Array]:
        """Yield the embeddings from the draw at position `start` on."""
        while start < len(self.draws):
            first, start = start, batch_end(self.draws, start, len(self.draws), self.nbytes)
            entries = self.held[first:start] or self.cache.get_many(self.posterior, self.draws[first:start])
            for position, entry in enumerate(entries, start=first):
                if entry is None or entry.meta["sha256"] != self.announced[position]:
                    reason = "evicted" if entry is None else "computed again with other bits than the ETag announced"
                    raise ResponseAbortedError(f"Draw {self.draws[position].index} was {reason}.")
                self.heads.append(entry.meta)
                self.eigenvalues.append(entry.arrays["eigenvalues"])
                yield self.points.take(entry.arrays["embedding"])


def _table(
    result: _DrawReader, embeddings: Iterator[Array], spec: DrawsSpec, dtype: np.dtype[Any], ids: Array | None
) -> ResultTable:
    """Return a row per point of each draw: ids, draw, scale if it is an axis, point, y1 to yp."""
    names = id_columns(None if ids is None else result.points.take(ids))
    index_columns = [("draw", np.dtype(np.uint64)), *([("scale", np.dtype(float))] if spec.grid else [])]
    id_kinds = [(name, values.dtype) for name, values in names.items()]
    columns = [
        *id_kinds,
        *index_columns,
        ("point", np.dtype(np.int64)),
        *((f"y{i}", dtype) for i in range(1, spec.p + 1)),
    ]
    numbers = np.array(result.points.positions, np.int64)
    batch = max(1, _TABLE_BYTES // (8 * spec.p * len(numbers)))

    def parts() -> Iterator[list[Array]]:
        pairs = zip(result.draws, embeddings, strict=True)
        while group := list(islice(pairs, batch)):
            draws = np.array([key.index for key, _ in group], np.uint64).repeat(len(numbers))
            scales = [np.array([key.scale for key, _ in group]).repeat(len(numbers))] if spec.grid else []
            matrix = np.concatenate([embedding for _, embedding in group])
            rows = [np.tile(values, len(group)) for values in names.values()]
            yield [*rows, draws, *scales, np.tile(numbers, len(group)), *matrix_columns(matrix, "y").values()]

    return ResultTable(columns, parts())


def partial_npy_response(
    here: Stores, limiter: StreamLimiter, job: Job, spec: DrawsSpec, dtype: Dtype, headers: dict[str, str]
) -> LimitedStreamingResponse:
    """Return the embeddings as npy in a response that ends with the job, or raise ``too-many-streams``."""
    stack = Stack(spec.shape[:-2], (spec.n, spec.p), np.dtype(dtype), ())
    header = npy_header(stack.dtype, stack.shape)

    async def body() -> AsyncIterator[bytes]:
        yield header
        async for entry in _completed_draws(here, limiter, job, spec):
            yield np.ascontiguousarray(entry.arrays["embedding"], stack.dtype).tobytes()

    fields = {"Content-Length": str(len(header) + stack.nbytes), "X-Accel-Buffering": "no", **headers}  # not held back
    return LimitedStreamingResponse(limiter, here.tenant or DEFAULT, body, media_type=NPY, headers=fields)


async def _completed_draws(here: Stores, limiter: StreamLimiter, job: Job, spec: DrawsSpec) -> AsyncIterator[Entry]:
    """Yield all draws of a job with numeric scales in order, each as soon as it and those before it are complete.

    No thread waits meanwhile. Raise `ResponseAbortedError` if the job fails or is cancelled, the process shuts down, or
    at the end of the job, if a draw was evicted before it is sent: from then on a request computes it again.
    """
    arrays_id = await run_in_threadpool(here.posteriors.arrays_id, job.subject)
    keys = list(spec.draws())
    sent = 0
    async for now in job_states(here, limiter, job):
        if now.is_open and now.status != "cancelling":
            complete = await run_in_threadpool(_complete, here, now, spec)
        elif now.status != "succeeded":
            raise ResponseAbortedError(f"Job {job.id} is {now.status}; {sent} of its {spec.total} draws were sent.")
        else:
            complete = spec.total
        while sent < complete:
            part = keys[sent : batch_end(keys, sent, complete, 8 * spec.n * spec.p)]
            for entry in await run_in_threadpool(here.draws.get_many, arrays_id, part):
                if entry is None and not now.is_open:
                    raise ResponseAbortedError(f"Draw {sent} of job {job.id} was evicted before it was sent.")
                if entry is None:
                    complete = sent
                    break
                yield entry
                sent += 1
    if sent < spec.total:
        raise ResponseAbortedError(f"The service stops; {sent} of the {spec.total} draws of job {job.id} were sent.")


def _complete(here: Stores, job: Job, spec: DrawsSpec) -> int:
    """Return the number of complete draws before the first gap."""
    complete = 0
    for shard, count in enumerate(here.jobs.shard_counts(job)):
        complete += count
        if count < spec.shard_size(shard):
            break
    return complete
