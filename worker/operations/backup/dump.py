"""Taking a backup, while the service runs: data first, then what refers to them, so that no record lacks its data."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.analyses.embedding_records import record_of as embedding_of
from worker.base.clock import now_ms
from worker.base.versions import versioned
from worker.operations.backup.records import ended_jobs
from worker.records.ids import text
from worker.records.job import job_from
from worker.storage.posteriors import record_of as posterior_of
from worker.tenancy.api_keys import format_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.operations.backup.archive import Writer
    from worker.records.cache_entry import Array
    from worker.stores import Stores

CACHED = ("posterior", "draw", "result")  # what the keys of the cache's entries begin with; then what they are about
KINDS = ("data sets", "posteriors", "calibrations", "embeddings", "jobs", "keys", "cached arrays")


@dataclass(frozen=True, kw_only=True)
class BackupScope:
    """What of a deployment is meant.

    Parameters
    ----------
    tenants
        Whose; None: everyone's.
    arrays, keys
        Whether the array cache, and the bearer keys, are meant, too.

    """

    tenants: frozenset[str] | None = None
    arrays: bool = False
    keys: bool = False

    def has(self, tenant: str) -> bool:
        """Say whether a tenant's things are meant."""
        return self.tenants is None or tenant in self.tenants


@dataclass
class _Taken:
    """What is in the archive by now: the ids that others may refer to, and how many of each kind."""

    datasets: set[str] = field(default_factory=set)
    subjects: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


def take(here: Stores, archive: Writer, chosen: BackupScope) -> dict[str, int]:
    """Write a backup, and return how many of each of `KINDS` are in it.

    What refers to data that were deleted, or came, while it was taken is left for the next one. So are jobs that have
    not ended; what they were to make can be asked for again.
    """
    taken = _Taken()
    _datasets(here, archive, chosen, taken)
    with archive.lines("posteriors.jsonl") as write:
        _posteriors(here, write, chosen, taken)
    with archive.lines("embeddings.jsonl") as write:
        _embeddings(here, write, chosen, taken)
    with archive.lines("jobs.jsonl") as write:
        _jobs(here, write, chosen, taken)
    if chosen.keys:
        kept = {key.id: key for key in here.keys.all() if chosen.has(key.tenant)}
        raw = format_keys(kept).encode()
        archive.add("keys.json", io.BytesIO(raw), len(raw))
        taken.counts["keys"] = len(kept)
    if chosen.arrays:
        with archive.lines("cache.jsonl") as write:
            _arrays(here, archive, write, taken)
    tenants = None if chosen.tenants is None else sorted(chosen.tenants)
    archive.seal(tenants=tenants, arrays=chosen.arrays, keys=chosen.keys, counts=taken.counts)
    return taken.counts


def _datasets(here: Stores, archive: Writer, chosen: BackupScope, taken: _Taken) -> None:
    for id_ in here.datasets.ids():
        with here.datasets.opened(id_) as files:
            if files is None:
                continue
            known = here.datasets.get(id_)
            if known is None or not chosen.has(known.tenant):
                continue
            for suffix, file in files.items():
                archive.add(f"datasets/{id_}{suffix}", file, os.fstat(file.fileno()).st_size)
        taken.datasets.add(id_)
        taken.counts["data sets"] += 1
    taken.subjects |= taken.datasets


def _posteriors(here: Stores, write: Callable[[dict[str, Any]], None], chosen: BackupScope, taken: _Taken) -> None:
    for id_, raw, calibration in here.posteriors.all():
        record = posterior_of(id_, raw)
        if id_ in taken.subjects or record.dataset not in taken.datasets or not chosen.has(record.tenant):
            continue
        found = None if calibration is None else json.loads(calibration)
        write({"id": id_, "record": json.loads(raw), "calibration": found})
        taken.subjects.add(id_)
        taken.counts["posteriors"] += 1
        taken.counts["calibrations"] += found is not None


def _embeddings(here: Stores, write: Callable[[dict[str, Any]], None], chosen: BackupScope, taken: _Taken) -> None:
    seen: set[str] = set()
    for id_, raw, left in here.embeddings.all():
        record = embedding_of(id_, raw)
        if id_ in seen or record.recipe.dataset not in taken.datasets or not chosen.has(record.tenant):
            continue
        write({"id": id_, "record": json.loads(raw), "until": now_ms() + left})
        seen.add(id_)
    taken.counts["embeddings"] = len(seen)


def _jobs(here: Stores, write: Callable[[dict[str, Any]], None], chosen: BackupScope, taken: _Taken) -> None:
    seen: set[str] = set()
    for id_, fields, left in ended_jobs(here.client):
        job = job_from(fields)
        if id_ in seen or job.is_open or job.subject not in taken.subjects or not chosen.has(job.tenant):
            continue
        write({"id": id_, "record": fields, "until": now_ms() + left})
        seen.add(id_)
    taken.counts["jobs"] = len(seen)


def _arrays(here: Stores, archive: Writer, write: Callable[[dict[str, Any]], None], taken: _Taken) -> None:
    """Write the entries about what is in the archive, one by one; what is evicted meanwhile is left out."""
    number, seen = 0, set()
    for key in _cached(here):
        subject = key.split(":")[1]
        if key in seen or subject not in taken.subjects or (entry := here.cache.get(_own(key))) is None:
            continue
        seen.add(key)
        members = {}
        for name, array in entry.arrays.items():
            members[name] = f"cache/{number}.npy"
            with _as_npy(array) as file:
                archive.add(members[name], file, file.getbuffer().nbytes)
            number += 1
        write({"key": key, "meta": entry.meta, "arrays": members})
    taken.counts["cached arrays"] = len(seen)


def _cached(here: Stores) -> Iterator[str]:
    """Yield the keys of the cache's entries, as they are called in version 1."""
    own = _own("")
    for kind in CACHED:
        for raw in here.cache.client.scan_iter(match=f"{own}{kind}:*", count=1000):
            key = text(raw).removeprefix(own)
            if ":tmp:" not in key:  # being written
                yield key


def _own(key: str) -> str:
    return versioned(key)


def _as_npy(array: Array) -> io.BytesIO:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    file.seek(0)
    return file
