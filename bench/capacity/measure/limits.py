"""Costs that grow with stored data: the same calls with few and with many records, workers and data sets."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from worker.base.clock import now_iso
from worker.base.settings import Settings
from worker.observability.live_workers import WorkerState, announce
from worker.operations.embedded_redis import cache_server, queue_server
from worker.operations.health import queue_states, readiness
from worker.records.cache_entry import Entry
from worker.records.draws import DrawKey
from worker.records.ids import digest
from worker.storage.datasets import Dataset
from worker.storage.posteriors import ARRAYS, PosteriorRecord
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPEATS = 5
TOGETHER = 2_000  # records per round trip
PAGE = 20
FEW = 1_000
DRAWS = 16  # cached draws of the deleted posterior
BEGAN = "2025-01-01T00:00:"

# Copies of the record and index of `_record`, by number. KEYS: index. ARGV: first number, last number, record 0.
_RECORDS = f"""
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local name = string.format('%032x', number)
  local record = string.gsub(ARGV[3], string.rep('0', 32), name)
  redis.call('SET', 'glle:posterior:post_' .. name, record)
  redis.call('ZADD', KEYS[1], 0, string.format('{BEGAN}%012d post_%s', number, name))
  redis.call('SADD', 'glle:dataset:ds_' .. name .. ':posteriors', 'post_' .. name)
end
"""

# One cached draw of each. ARGV: first number, last number, the key's format.
_DRAWS = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call('HSET', string.format(ARGV[3], number), 'head:0', '{}', 'data:0', string.rep('0', 64))
end
"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Cost of one call: milliseconds of this process and of the servers, and commands.

    Attributes
    ----------
    of, count
        Kind of record, and its number.

    """

    what: str
    of: str
    count: int
    client_ms: float
    server_ms: float
    commands: float


def questions(posteriors: int, workers: int, datasets: int) -> Iterator[Question]:
    """Measure every call with few records of each kind, then with many."""
    with _stores() as stores:
        for count in (FEW, posteriors):
            _fill_posteriors(stores, count)
            yield from _of_posteriors(stores, count)
        for count in (FEW // 100, workers):
            _fill_workers(stores, count)
            yield from _of_workers(stores, count)
        for count in (FEW, datasets // 5, datasets):
            _fill_datasets(stores, count)
            yield from _of_datasets(stores, count)


@contextlib.contextmanager
def _stores() -> Iterator[Stores]:
    """Run two servers with enough memory for everything."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="glle-limits-"))
        settings = Settings(data_dir=folder, cache_bytes=4 * 2**30, queue_bytes=8 * 2**30)
        servers = [queue_server(settings), cache_server(settings)]
        for server in servers:
            server.spawn()
            stack.callback(server.stop)
        queue, cache = (server.wait().url for server in servers)
        stores = Stores.connect(replace(settings, redis_url=queue, cache_url=cache))
        stack.callback(stores.close)
        stores.client.config_set("appendonly", "no")  # the disk is not measured
        yield stores


def _measure(stores: Stores, of: str, count: int, what: str, call: Callable[[int], object]) -> Question:
    """Measure a call several times."""
    call(-1)  # warm-up
    servers = (stores.client, stores.cache.client)
    before = [client.info("everything") for client in servers]
    started = time.process_time()
    for number in range(REPEATS):
        call(number)
    seconds = time.process_time() - started
    after = [client.info("everything") for client in servers]

    def more(name: str) -> float:
        return float(sum(b[name] - a[name] for a, b in zip(before, after, strict=True))) / REPEATS

    return Question(
        what=what,
        of=of,
        count=count,
        client_ms=1e3 * seconds / REPEATS,
        server_ms=1e3 * (more("used_cpu_user") + more("used_cpu_sys")),
        commands=more("total_commands_processed") - 2 / REPEATS,  # the two INFO commands of the meter
    )


def _of_posteriors(stores: Stores, count: int) -> Iterator[Question]:
    """Measure calls with this number of posteriors, each with one cached array."""
    id_ = _posterior(0)
    middle, newest = f"{BEGAN}{count // 2:012d}", stores.posteriors.newest
    yield _measure(stores, "posteriors", count, "a page of the list", lambda _: list(islice(newest(), PAGE)))
    yield _measure(stores, "posteriors", count, "a page from a cursor", lambda _: list(islice(newest(middle), PAGE)))
    yield _measure(stores, "posteriors", count, "one record", lambda _: stores.posteriors.get(id_))

    def delete(number: int) -> None:
        record = _record(count + 1 + number)
        stores.posteriors.record(record)
        small = Entry({}, {"embedding": np.zeros((2, 2))})
        keys = [DrawKey(0, index, 1.0, "posterior", "procrustes") for index in range(DRAWS)]
        stores.draws.put(record.arrays_id, dict.fromkeys(keys, small))
        stores.posteriors.delete(record)
        assert not any(stores.draws.contains(record.arrays_id, keys))

    yield _measure(stores, "posteriors", count, f"delete one with {DRAWS} draws", delete)


def _of_workers(stores: Stores, count: int) -> Iterator[Question]:
    """Measure calls with this number of live workers."""
    yield _measure(stores, "workers", count, "GET /readyz", lambda _: readiness(stores))
    yield _measure(stores, "workers", count, "queue and workers of GET /metrics", lambda _: queue_states(stores))
    yield _measure(stores, "workers", count, "sweep, once a heartbeat", lambda _: stores.recovery.sweep())


def _of_datasets(stores: Stores, count: int) -> Iterator[Question]:
    """Measure calls with this number of data sets in the folder."""
    newest = stores.datasets.newest
    yield _measure(stores, "data sets", count, "a page of the list", lambda _: list(islice(newest(), PAGE)))
    yield _measure(stores, "data sets", count, "bytes of all, GET /metrics", lambda _: stores.datasets.usage())
    tenant = stores.datasets.of("default", 10**15)
    yield _measure(
        stores, "data sets", count, "bytes of a tenant, upload with a quota", lambda _: tenant.stored_bytes()
    )


def _fill_posteriors(stores: Stores, count: int) -> None:
    """Have the servers write records up to this number, and a draw of each."""
    begin = stores.client.zcard("glle:posteriors")
    record = json.dumps(_record(0).to_dict())
    records, draws = stores.client.register_script(_RECORDS), stores.cache.client.register_script(_DRAWS)
    for first in range(begin, count, TOGETHER):
        last = min(first + TOGETHER, count) - 1
        records(keys=["glle:posteriors"], args=[first, last, record])
        draws(args=[first, last, DrawKey(0, 0, 1.0, "posterior", "procrustes").group_key("post_%032x")])


def _posterior(number: int) -> str:
    return f"post_{number:032x}"


def _record(number: int) -> PosteriorRecord:
    """Return a record of realistic size."""
    arrays = {name: {"shape": [5000, 10, 10], "dtype": "float64"} for name in "abcdefgh"}
    spec = dict.fromkeys((f"parameter_{letter}" for letter in "abcdefghijkl"), 10)
    return PosteriorRecord(
        id=_posterior(number), dataset=f"ds_{number:032x}", n=5000, d=3, spec=spec,
        diagnostics={"notes": [], **{f"figure_{letter}": 0.123456789 for letter in "abcdefghijkl"}},
        eigenvalues=[1e-6, 2e-6, 3e-6], seconds=0.3, stages=dict.fromkeys(("neighbors", "weights"), 0.1), arrays=arrays,
        nbytes=5_000_000, draw_cost={"seconds": 0.01, "each_seconds": 0.003, "bytes": 4e7},
        provenance={"numbers": "0.1.0", ARRAYS: "0" * 64}, job=f"job_{number:020x}",
        created=f"{BEGAN}{number:012d}",
    )  # fmt: skip


def _fill_workers(stores: Stores, count: int) -> None:
    """Announce this number of workers."""
    for number in range(count):
        name = f"machine-{number // 32}-{number}"
        state = WorkerState(name=name, host=name, busy=0, engine="0.1.0", numbers="0.1.0", threads="1")
        announce(stores.client, replace(stores.settings, heartbeat=3600), state)


def _fill_datasets(stores: Stores, count: int) -> None:
    """Write this number of data sets of two points without the store, which would hash each."""
    folder = Path(stores.settings.data_dir) / "datasets"
    folder.mkdir(exist_ok=True)
    for number in range(sum(1 for _ in folder.glob("*.json")), count):
        id_ = f"ds_{digest(number, 'ds')}"
        record = Dataset(
            id=id_, sha256=digest(number) * 2, n=2, d=2, dtype="float64", nbytes=32, names=None, has_labels=False,
            has_coordinates=False, source={"kind": "upload"}, created=now_iso(),
        )  # fmt: skip
        (folder / f"{id_}.npy").write_bytes(b"0" * 160)
        (folder / f"{id_}.json").write_text(json.dumps(asdict(record)))
