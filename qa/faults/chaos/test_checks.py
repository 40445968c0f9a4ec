"""Each check of `make -C qa chaos` can fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rq.rate_limit import RateLimit

from glle_engine.tables.table import Table
from qa.faults.chaos import checks
from qa.faults.chaos.checks import CACHE, QUEUE, Census, differing_arrays, expected_arrays
from qa.faults.chaos.killer import parents_by_mark
from qa.faults.chaos.stopping import StopOnRequest
from qa.load.content import Content, Draws, Embedding, Fit, Summary
from qa.load.ledger import Attempt, Ledger
from tests.conftest import until
from worker.jobs.draw_stream import stream_of
from worker.jobs.rq_tasks import open_queue
from worker.records.draws import DrawAddress
from worker.records.ids import text
from worker.records.job import BATCH

if TYPE_CHECKING:
    from worker.stores import Stores

FIT = Fit(Content(0), 8)


@pytest.mark.parametrize(
    "artifact",
    [
        Content(3, is_synthetic=True), FIT, Draws(FIT, 4, 2, 0, 1.0), Draws(FIT, 4, 1, 0, 0.5, is_single=True),
        Summary(FIT, 3, 0), Embedding(Content(0), "lle"),
    ],
)  # fmt: skip
def test_changed_bit_is_reported(artifact: Content | Fit | Draws | Summary | Embedding) -> None:
    """Results of the engine pass; an array with one flipped bit is named."""
    ledger = Ledger()
    for name, array in expected_arrays(artifact).items():
        ledger.received_array(artifact, name, array)
    assert list(differing_arrays(ledger.arrays)) == []
    name, array = next(iter(expected_arrays(artifact).items()))
    other = np.array(array)
    other.flat[0] = np.nextafter(other.flat[0], np.inf) if other.dtype.kind == "f" else other.flat[0] + 1
    ledger.received_array(artifact, name, other)
    assert list(differing_arrays(ledger.arrays)) == [f"{name} of {artifact}"]
    assert [len(row.violations) for row in checks.bits(ledger)] == [1, 1]
    assert len(ledger.faults) == 1


def leaks(stores: Stores, alive: set[str]) -> list[str]:
    """Return what a census of both servers reports."""
    census = Census()
    census.count_keys(stores.client, QUEUE, alive)
    census.count_keys(stores.cache.client, CACHE, alive)
    census.check_members(stores.client, alive)
    census.check_requests(stores.cache.client)
    return sorted(census.leaks)


def test_leak_of_each_kind_is_reported(stores: Stores) -> None:
    """Keys without an owner, with a missing or unexpected expiry, about a removed subject, and stale index members."""
    stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    alive = {"post_1", "ds_1"}
    stores.client.set("glle:posterior:post_1", "there")
    assert leaks(stores, alive) == []
    stores.client.set("glle:orphan", 1)
    stores.client.set("glle:claim:kept", 1)
    stores.client.set("glle:posterior:post_1", "there", ex=100)
    stores.client.zadd("glle:embeddings:of:ds_2", {"2026 emb_1": 0})
    stores.client.zadd("glle:jobs", {"2026 job_gone": 0})
    stores.client.sadd("glle:open", "job_gone")
    group = DrawAddress(0, 0, 1.0, "posterior", "none").group_key("post_2")
    stores.cache.client.set(group, 1)
    assert leaks(stores, alive) == [
        "glle:claim:kept: should expire",
        "glle:embeddings:of:ds_2: its subject does not exist",
        "glle:jobs: job_gone has no record",
        "glle:open: job_gone has ended",
        "glle:orphan: no owner",
        "glle:posterior:post_1: should not expire",
        f"{group}: should expire",
    ]


def test_remaining_work_is_reported(stores: Stores) -> None:
    """Tasks that wait or run, and requests for draws, are leaks once all jobs have ended."""
    queue, limit = open_queue(BATCH, stores.client), RateLimit(f"{BATCH}:alice", 1)
    for name in ("job_1-r0-s0", "job_2"):
        queue.enqueue_call("draws", job_id=name, rate_limit=limit)
    stores.client.zadd(f"rq:wip:{BATCH}", {"job_3:1": 1})
    entry = text(stores.cache.client.xadd(stream_of("default"), {"draw": "0:0:1.0"}))
    words = ("waits", "runs", "turns", "limit")
    assert [leak for leak in leaks(stores, set()) if any(f" {word} " in leak for word in words)] == [
        "RQ: job_1-r0-s0 is in a tenant's limit without an open job",
        "RQ: job_1-r0-s0 waits without an open job",
        "RQ: job_2 is in a tenant's limit without an open job",
        "RQ: job_3:1 runs without an open job",
        "default: is in the turns of draws without a request",
        f"{stream_of('default')} {entry}: waits without a client",
    ]


def test_unfinished_or_lost_job_is_reported(stores: Stores) -> None:
    """The job is looked up in the records, at most 30 s after the last kill."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    ledger = Ledger()
    ledger.record_accepted(job.id, FIT)
    ledger.record_accepted("job_gone", FIT)
    (late, missing), _ = checks.all_ended(stores.client, ledger, last=0.0)
    assert late.violations == [f"{job.id} queued"]
    assert missing.violations == ["job_gone"]


def test_remaining_files_and_processes_are_reported(stores: Stores) -> None:
    """Files without a record, lost ones, and processes of the run anywhere in the tree, are reported."""
    folder = Path(stores.settings.data_dir)
    kept, lost = (stores.datasets.add(Table(values=np.eye(2) + n, source={}))[0] for n in range(2))
    paths = [folder / "objects" / dataset.stored["values"].path for dataset in (kept, lost)]
    paths[1].rename(paths[0].with_name(".unfinished-x"))
    row = checks.files(folder, stores.client)
    assert [name.partition("/objects/")[2] for name in row.violations] == [
        f"{kept.stored['values'].path.rpartition('/')[0]}/.unfinished-x",
        f"{lost.stored['values'].path} is missing",
    ]
    with subprocess.Popen(["/bin/sleep", "60"], env={"CHAOS_RUN": "test"}) as process:
        try:
            # A process that has just begun its program has no environment in /proc for a moment.
            until(lambda: parents_by_mark("CHAOS_RUN=test") == {process.pid: os.getpid()})
        finally:
            process.kill()


def test_a_process_ends_before_the_write_that_was_asked_for(tmp_path: Path) -> None:
    """Another process goes on."""
    stop = StopOnRequest(tmp_path)
    assert not stop("SET a")
    request = tmp_path / str(os.getpid())
    request.write_text("2")
    assert [stop(name) for name in ("SET a", "SET b", "SET c")] == [False, False, True]
    assert request.with_suffix(".at").read_text() == "SET c"
    assert not StopOnRequest(tmp_path / "other")("SET a")


def test_errors_are_answers_without_retry_after() -> None:
    """Clients accept no answer and 503 with Retry-After, but neither a plain 503 nor a 500."""
    answers = ((0, False), (200, False), (404, False), (503, True), (503, False), (500, False))
    assert [Attempt("GET job", one[0], 0.0, 0.1, "", one[1]).is_error for one in answers] == [*[False] * 4, True, True]
