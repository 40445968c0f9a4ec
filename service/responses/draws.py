"""Result of a draws job, read from the cache while it is sent, so that it is never in memory as a whole."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from service.encoding.aborted import ResponseAbortedError
from service.encoding.arrays import CSV, JSON, Array, Stack
from service.encoding.arrow import ARROW
from service.encoding.result import MEDIA, ArraysResult, immutable_headers, negotiate, scale_headers, unless_current
from service.encoding.selection import Selection
from service.encoding.tables import ResultTable, id_columns, matrix_columns
from worker.records.draws import batch_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fastapi.responses import Response

    from service.responses.analyses import ResultQuery
    from worker.records.cache_entry import Entry
    from worker.records.draws import DrawAddress, DrawsSpec
    from worker.storage.draw_cache import DrawCache

_TABLE_BYTES = 2**20  # of the rows of a table that are made at once
SMALL_BYTES = 12 * 2**20  # of a result that is read at once
_ATTEMPTS = 4  # at draws that are evicted before they are sent


def draws_response(
    cache: DrawCache, posterior: str, spec: DrawsSpec, query: ResultQuery, restore: Callable[[], None]
) -> Response | None:
    """Return the requested embeddings of a draws job with numeric scales, or None if some were evicted.

    `posterior` is `PosteriorRecord.arrays_id`. `restore` computes draws again that are evicted while the response is
    sent. Raise `ProblemError`, for example ``not-acceptable`` or ``slice-out-of-range``.
    """
    media = negotiate(query.request, MEDIA)
    points = Selection.of(query.points, spec.n, "points")
    draws = Selection.of(query.draws, spec.count, "draws")
    positions = [scale * spec.count + draw for scale in range(len(spec.scales)) for draw in draws.positions]
    chosen = [spec.key(position) for position in positions]
    result = _DrawReader(cache, posterior, chosen, points, 8 * spec.n * spec.p, restore)
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
    computed again with another digest is never sent. `held` has all draws of a small result.
    """

    cache: DrawCache
    posterior: str
    draws: Sequence[DrawAddress]
    points: Selection
    nbytes: int
    restore: Callable[[], None]
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
            entries = self.held[first:start] or self._read(self.draws[first:start])
            for position, entry in enumerate(entries, start=first):
                if entry.meta["sha256"] != self.announced[position]:
                    raise ResponseAbortedError(
                        f"Draw {self.draws[position].index} was computed again with other bits than the ETag announced."
                    )
                self.heads.append(entry.meta)
                self.eigenvalues.append(entry.arrays["eigenvalues"])
                yield self.points.take(entry.arrays["embedding"])

    def _read(self, keys: Sequence[DrawAddress]) -> list[Entry]:
        """Return these draws; evicted ones are restored first, because the response has started."""
        for _ in range(_ATTEMPTS):
            entries = [entry for entry in self.cache.get_many(self.posterior, keys) if entry is not None]
            if len(entries) == len(keys):
                return entries
            self.restore()
        raise ResponseAbortedError("Draws are evicted faster than they are sent; the cache is too small for its use.")


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
