"""Response with the result of a draws job, which is read from its stored shards while it is sent.

A shard is the part of the draws that one task has made. The whole result is never in memory.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from service.encoding.arrays import (
    JSON,
    Array,
    ResponseAbortedError,
    ResultTable,
    Stack,
    id_columns,
    matrix_columns,
)
from service.encoding.result import (
    RESULT_MEDIA,
    TABLES,
    ArraysResult,
    Selection,
    immutable_headers,
    negotiate,
    scale_headers,
    unless_current,
)
from worker.base.problems import ProblemError
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fastapi.responses import Response

    from service.responses.analyses import ResultQuery
    from worker.records.draws import DrawAddress, DrawsSpec
    from worker.storage.results import ResultStore
    from worker.stores import Stores

_TABLE_BYTES = 2**20  # the rows of a table are made in pieces of about this many bytes
SMALL_BYTES = 12 * 2**20  # pieces of a smaller result are read without a thread


def calibrated_spec(stores: Stores, posterior: str, spec: DrawsSpec) -> tuple[DrawsSpec | None, list[dict[str, Any]]]:
    """Replace the scale auto in a specification by the calibrated scale; also return the warnings about this scale.

    Returns None in place of the specification if its scale is auto and the posterior has not been calibrated yet.
    """
    if not spec.is_auto:
        return spec, []
    calibration = stores.posteriors.calibration(posterior)
    return (None, []) if calibration is None else (spec.at(calibration["scale"]), calibration.get("notes", []))


def missing_shards(stores: Stores, posterior: str, spec: DrawsSpec) -> bool:
    """Return whether any draws of a job are not stored; all scales in `spec` must be numbers, not auto.

    The draws are stored by shards: a shard is what one task of the job has made.
    """
    return not all(stores.results.contains([spec.result_key(posterior, shard) for shard in range(spec.shards)]))


def draw_of_shard(entry: Entry, number: int) -> Entry:
    """Return draw number `number` (from 0) of a shard, which is the stored result of one task of a draws job."""
    arrays = {"embedding": entry.arrays["embeddings"][number], "eigenvalues": entry.arrays["eigenvalues"][number]}
    return Entry(entry.meta["draws"][number], arrays)


def draws_response(results: ResultStore, posterior: str, spec: DrawsSpec, query: ResultQuery) -> Response:
    """Return the response with the selected draws of a job; all scales in `spec` must be numbers, not auto.

    If draws are deleted before they are sent, the response ends early and the connection is closed. Raises
    `ProblemError`, for example ``not-acceptable``, ``slice-out-of-range`` or ``result-damaged``.
    """
    media = negotiate(query.request, RESULT_MEDIA)
    points = Selection.from_query(query.points, spec.n, "points")
    draws = Selection.from_query(query.draws, spec.n_draws, "draws")
    positions = [scale * spec.n_draws + draw for scale in range(len(spec.scales)) for draw in draws.positions]
    result = _DrawReader(results, posterior, spec, positions, points)
    sha256 = result.sha256()
    scales = [float(scale) for scale in spec.scales]
    form = f"{spec.grid} {len(scales)}"  # the same draws may be requested in several shapes
    noted = "notes" if query.notes and media == JSON else ""
    slice_tag = " ".join(filter(None, (form, draws.tag, points.tag, noted)))
    headers = immutable_headers(sha256, media, query.dtype, slice_tag) | scale_headers(scales, query.notes)

    def respond() -> Response:
        dtype, matrices = np.dtype(query.dtype), result.start()
        is_small = spec.shards == 1 and spec.nbytes <= SMALL_BYTES  # the only shard has been read into memory
        ids = query.ids() if media in TABLES else None
        lead = (*((len(scales),) if spec.grid else ()), len(draws))
        shape = (len(points), spec.p)
        # In JSON these members follow the data, because all draws have been read by then.
        later: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("eigenvalues", lambda: np.reshape(result.eigenvalues, (*lead, spec.p)).tolist()),
            ("diagnostics", lambda: [head["diagnostics"] for head in result.heads]),
            ("draws", lambda: [{"index": head["index"], "scale": head["scale"]} for head in result.heads]),
            *([("notes", lambda: list(query.notes))] if query.notes else []),
        )
        return ArraysResult(
            arrays={"embeddings": Stack(lead, shape, dtype, matrices, result.embeddings, is_resident=is_small)},
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
    """Reads the selected points of the selected draws of a job.

    `positions` are the numbers of the selected draws among all draws of the job, scale by scale. Draws are stored by
    shards, each made by one task; `latest` keeps the shard that was read last. `heads` (metadata) and `eigenvalues`
    grow with each draw that is read.
    """

    results: ResultStore
    posterior: str
    spec: DrawsSpec
    positions: Sequence[int]
    points: Selection
    heads: list[dict[str, Any]] = field(default_factory=list)
    eigenvalues: list[Array] = field(default_factory=list)
    latest: dict[int, Entry] = field(default_factory=dict)

    @property
    def draws(self) -> list[DrawAddress]:
        """Addresses (seed, index, scale, ...) of the selected draws, in the order of the result."""
        return [self.spec.key(position) for position in self.positions]

    def sha256(self) -> str:
        """Return a digest of the selected draws, for the ETag."""
        digests = [self._read(position).meta["sha256"] for position in self.positions]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    def start(self) -> Iterator[Array]:
        """Return an iterator over all embeddings; the first is read now, to raise errors before the response starts."""
        matrices = self.embeddings()
        return chain(list(islice(matrices, 1)), matrices)

    def embeddings(self, start: int = 0) -> Iterator[Array]:
        """Yield the embeddings of the selected draws, without the first `start` ones."""
        for position in self.positions[start:]:
            try:
                entry = self._read(position)
            except ProblemError as error:  # `sha256` has read all draws, so they were deleted meanwhile
                raise ResponseAbortedError(f"Draws of {self.posterior}: {error}") from error
            self.heads.append(entry.meta)
            self.eigenvalues.append(entry.arrays["eigenvalues"])
            yield self.points.select(entry.arrays["embedding"])

    def _read(self, position: int) -> Entry:
        """Return the draw at a position among all draws of the job; raise `ProblemError` if it is gone or damaged."""
        shard, number = divmod(position, self.spec.per_shard)
        if shard not in self.latest:
            self.latest.clear()
            self.latest[shard] = self.results.fetch_entry(self.spec.result_key(self.posterior, shard))
        return draw_of_shard(self.latest[shard], number)


def _table(
    result: _DrawReader, embeddings: Iterator[Array], spec: DrawsSpec, dtype: np.dtype[Any], ids: Array | None
) -> ResultTable:
    """Return a table with a row for each point of each draw: ids, draw, scale if there are several, point, y1 to yp."""
    names = id_columns(None if ids is None else result.points.select(ids))
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
