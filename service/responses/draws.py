"""The draws of a job on the wire: read from the cache as they are sent, so that the result is never whole."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi.responses import Response

from service.encoding.aborted import ResponseAbortedError
from service.encoding.arrays import (
    CSV,
    JSON,
    NPY,
    NPZ,
    Array,
    Stack,
    json_response,
    negotiate,
    npy_response,
    npz_response,
)
from service.encoding.arrow import ARROW
from service.encoding.selection import Selection
from service.encoding.tables import Table, matrix_columns, table_response
from service.responses.conditional import immutable_headers, is_not_modified, scale_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from service.responses.analyses import ResultQuery
    from worker.records.draws import DrawKey, DrawsSpec
    from worker.storage.array_cache import Entry
    from worker.storage.tiered_cache import TieredCache

MEDIA = (JSON, NPY, NPZ, ARROW, CSV)
_READ_BYTES = 2**20  # of draws read in one round trip
_ATTEMPTS = 4  # to read what is evicted again and again


def draws_response(
    cache: TieredCache, posterior: str, spec: DrawsSpec, wanted: ResultQuery, again: Callable[[], None]
) -> Response | None:
    """Return the embeddings of a draws job whose scales are numbers, those that are wanted; None: some were evicted.

    Parameters
    ----------
    posterior
        The name of its arrays: `PosteriorRecord.drawn_from`.
    again
        Has made again what is evicted while it is sent.

    Raises
    ------
    ProblemError
        ``not-acceptable``, ``slice-out-of-range`` and the like.

    """
    media = negotiate(wanted.request, MEDIA)
    points = Selection.of(wanted.points, spec.n, "points")
    draws = Selection.of(wanted.draws, spec.count, "draws")
    positions = [scale * spec.count + draw for scale in range(len(spec.scales)) for draw in draws.positions]
    chosen = [spec.key(position) for position in positions]
    result = _Result(cache, posterior, chosen, points, max(1, _READ_BYTES // (8 * spec.n * spec.p)), again)
    if (sha256 := result.sha256()) is None:
        return None
    scales = [float(scale) for scale in spec.scales]
    form = f"{spec.grid} {len(scales)}"  # the same draws may be of another shape
    part = " ".join(filter(None, (form, draws.tag, points.tag)))
    headers = immutable_headers(sha256, media, wanted.dtype, part) | scale_header(*scales)
    if is_not_modified(wanted.request, headers):
        return Response(status_code=304, headers=headers)
    dtype = np.dtype(wanted.dtype)
    made = result.begun()
    if media in {CSV, ARROW}:
        return table_response(_table(result, made, spec, dtype), media, headers)
    lead = (*((len(scales),) if spec.grid else ()), len(draws))
    embeddings = Stack(lead, (len(points), spec.p), dtype, made, result.embeddings)
    if media == NPY:
        return npy_response(embeddings, headers)
    if media == NPZ:
        indices = np.array([spec.first + draw for draw in draws.positions], np.uint64)
        return npz_response(
            {
                "embeddings": embeddings,
                "eigenvalues": Stack(lead, (spec.p,), np.dtype("float64"), result.eigenvalues),
                "indices": Stack.of(indices),
                "scales": Stack.of(np.array(scales)),
            },
            headers,
        )
    # Read once the data were sent, when every draw has been seen.
    later: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("eigenvalues", lambda: np.reshape(result.eigenvalues, (*lead, spec.p)).tolist()),
        ("diagnostics", lambda: [head["diagnostics"] for head in result.heads]),
        ("draws", lambda: [{"index": head["index"], "scale": head["scale"]} for head in result.heads]),
    )
    return json_response(embeddings, ((name, value()) for name, value in later), headers)


@dataclass(frozen=True)
class _Result:
    """Some points of some draws, `together` read in one round trip; `heads` and `eigenvalues` are of those read.

    `announced` has the digest of each draw that the ETag was made of. A draw that is made again with another digest is
    never sent.
    """

    cache: TieredCache
    posterior: str
    draws: Sequence[DrawKey]
    points: Selection
    together: int
    again: Callable[[], None]
    heads: list[dict[str, Any]] = field(default_factory=list)
    eigenvalues: list[Array] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)

    def sha256(self) -> str | None:
        """Return a digest of all these draws, which are announced by it, or None when some are not there."""
        heads = self.cache.heads(self._keys())
        self.announced[:] = [head["sha256"] for head in heads if head is not None]
        if len(self.announced) < len(heads):
            return None
        return hashlib.sha256("".join(self.announced).encode()).hexdigest()

    def begun(self) -> Iterator[Array]:
        """Return all embeddings, the first of them read already: what cannot be is told before the answer begins."""
        made = self.embeddings()
        return chain(list(islice(made, 1)), made)

    def embeddings(self, start: int = 0) -> Iterator[Array]:
        """Yield the embeddings from the draw at a position on."""
        keys = self._keys()
        for first in range(start, len(keys), self.together):
            for position, entry in enumerate(self._read(keys[first : first + self.together]), start=first):
                if entry.meta["sha256"] != self.announced[position]:
                    raise ResponseAbortedError(
                        f"Draw {self.draws[position].index} was made again with other bits than the ETag announced."
                    )
                self.heads.append(entry.meta)
                self.eigenvalues.append(entry.arrays["eigenvalues"])
                yield self.points.take(entry.arrays["embedding"])

    def _read(self, keys: list[str]) -> list[Entry]:
        """Return entries, made again when they were evicted meanwhile: the answer has begun."""
        for _ in range(_ATTEMPTS):
            there = [entry for entry in self.cache.views(keys) if entry is not None]
            if len(there) == len(keys):
                return there
            self.again()
        raise ResponseAbortedError("Draws are evicted faster than they are sent; the cache is too small for its use.")

    def _keys(self) -> list[str]:
        return [key.cache_key(self.posterior) for key in self.draws]


def _table(result: _Result, embeddings: Iterator[Array], spec: DrawsSpec, dtype: np.dtype[Any]) -> Table:
    """Return a row for each point of each draw: draw, scale where it is an axis, point, y1 to yp."""
    counts = [("draw", np.dtype(np.uint64)), *([("scale", np.dtype(float))] if spec.grid else [])]
    columns = [*counts, ("point", np.dtype(np.int64)), *((f"y{i}", dtype) for i in range(1, spec.p + 1))]
    numbers = np.array(result.points.positions, np.int64)
    together = max(1, _READ_BYTES // (8 * spec.p * len(numbers)))

    def parts() -> Iterator[list[Array]]:
        made = zip(result.draws, embeddings, strict=True)
        while group := [pair for _, pair in zip(range(together), made, strict=False)]:
            draws = np.array([key.index for key, _ in group], np.uint64).repeat(len(numbers))
            scales = [np.array([key.scale for key, _ in group]).repeat(len(numbers))] if spec.grid else []
            matrix = np.concatenate([embedding for _, embedding in group])
            yield [draws, *scales, np.tile(numbers, len(group)), *matrix_columns(matrix, "y").values()]

    return Table(columns, parts())
