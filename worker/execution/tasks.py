"""The tasks of a worker: fit a posterior, make shards of draws or of resamples, run an analysis.

A task may run twice if its worker was killed. Its results are named by their content, so the second run finds or
repeats those of the first. An error in a task fails its job with a problem. RQ retries only a task whose worker was
killed, and a task waits for a Redis server that does not answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain, count, islice
from typing import TYPE_CHECKING

import redis
from rq.timeouts import JobTimeoutException

from glle_engine.base.progress import StageClock
from worker.analyses.embedding_records import remove_results
from worker.analyses.registry import analysis_of, recipes_of
from worker.base.clock import now_iso
from worker.base.numerics import provenance
from worker.base.problems import internal_error, problem_of, timed_out
from worker.base.versions import require_own_numbers
from worker.execution.background_writer import BackgroundWriter
from worker.execution.context import (
    PROGRESS_SECONDS,
    LongWorkError,
    TaskContext,
    cache_result,
    fitted,
    load_or_fit,
    progress_writer,
    read_again,
)
from worker.execution.draws import group_size, make_draws, store_draws, uncached_group
from worker.execution.resident import RESIDENT
from worker.execution.telemetry import TaskTelemetry, observe_task, record_stages, stage
from worker.jobs.rq_types import ANALYSIS, DRAWS, FIT
from worker.jobs.store import Cancelled, Job, job_key
from worker.records.draws import DrawsSpec
from worker.records.fits import neighbors_of, recorded, spec_of
from worker.storage.datasets import not_found
from worker.storage.posteriors import ARRAYS, PosteriorRecord
from worker.stores import Stores, process_stores

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from glle_engine import Posterior

AWAY_SECONDS = 300.0  # a task waits so long for a server; then its worker is free, and RQ retries the task
AGAIN_SECONDS = 0.5
LOOKED_UP = 1024  # draws whose presence in the cache is looked up together

BetweenGroups = Callable[[bool | None], object]

log = logging.getLogger(__name__)


def fit(job_id: str) -> None:
    """Fit the posterior of a job."""
    _run(job_id, _fit)


def draw(
    job_id: str,
    round_: int,
    shard: int,
    *,
    between_groups: BetweenGroups = lambda _: None,
    is_repeated: bool = True,
) -> None:
    """Make the draws, or the parts of an analysis, of a shard and, while time is left, of further shards of the job.

    Parameters
    ----------
    between_groups
        Called between two shards with whether requests for single draws wait, and with None between two lane groups
        of a shard with more than `PROGRESS_SECONDS` of work.
    is_repeated
        Whether the task may have run before; then it gives back the shards that it had taken.

    """
    attempts = count(int(is_repeated))

    def work(stores: Stores, job: Job) -> bool:
        if job.round != round_:  # reopened since: another task has this shard
            return False
        kind = _DrawsTask if job.kind == "draws" else _PartsTask
        task = kind(stores, job, shard, between_groups)
        with BackgroundWriter() as writer:
            task.run(writer, is_repeated=next(attempts) > 0)
        return task.has_ended

    _run(job_id, work)


def analyse(job_id: str, round_: int) -> None:
    """Run the analysis of a job."""
    _run(job_id, partial(_analyse, round_=round_))


HANDLERS: Mapping[str, Callable[..., None]] = {FIT: fit, DRAWS: draw, ANALYSIS: analyse}


def _run(job_id: str, work: Callable[[Stores, Job], bool]) -> None:
    """Run a task; while a server does not answer, wait and start again.

    `work` returns whether it has ended the job.
    """
    stores = process_stores()
    with observe_task(stores, job_id) as telemetry:
        until = time.monotonic() + min(AWAY_SECONDS, stores.settings.job_timeout / 2)
        while True:
            try:
                _attempt(stores, telemetry, job_id, work)
                break
            except redis.RedisError as error:
                if time.monotonic() > until:
                    raise  # no result can be recorded: RQ retries
                log.warning("Job %s waits for a Redis server: %s", job_id, error)
                with suppress(redis.RedisError, Cancelled):
                    stores.jobs.stage(job_id, "waiting for a server")
                time.sleep(AGAIN_SECONDS)
    if telemetry.job is not None:
        _clean_up(stores, telemetry.job)


def _clean_up(stores: Stores, job: Job) -> None:
    """Remove the results of a task whose data set, posterior or embedding was deleted meanwhile.

    A deletion removes the record first and the results last; a task looks up the record last. So the later of the two
    removes the results.
    """
    if job.posterior is not None and not stores.posteriors.exists(job.posterior):
        stores.posteriors.forget(job.posterior, is_drawn=job.kind != "fit")  # a fit makes no draws
    for recipe in recipes_of(job):
        if stores.embeddings.is_deleted(recipe.id):
            remove_results(stores.cache, recipe)
    if job.dataset is not None and not job.is_inline and stores.datasets.get(job.dataset) is None:
        stores.cache.forget(job.dataset)


def _attempt(stores: Stores, telemetry: TaskTelemetry, job_id: str, work: Callable[[Stores, Job], bool]) -> None:
    """Start a job, work on it, and record its end; raises `redis.RedisError` if a server does not answer."""
    try:
        job = telemetry.begin(stores.jobs.start(job_id))
        require_own_numbers(f"Job {job_id}", job.numbers)
        telemetry.is_latest = not work(stores, job)
    except Cancelled:
        stores.jobs.finish_cancel(job_id)
    except LongWorkError:
        stores.recovery.make_long(job_id)
    except redis.RedisError:
        raise
    except Exception as error:  # noqa: BLE001 # logged, and recorded as the job's problem
        _fail(stores, job_id, error)


def _fail(stores: Stores, job_id: str, error: Exception) -> None:
    """Record the problem that ended a job.

    An error while recording, such as a time-out, is recorded instead: RQ would run a task that raises four times.
    """
    try:
        timeout = stores.settings.job_timeout
        problem = timed_out(timeout) if isinstance(error, JobTimeoutException) else problem_of(error)
        if problem.is_internal:
            log.error("Job %s failed", job_id, exc_info=error)
        stores.jobs.fail(job_id, problem)
    except redis.RedisError:
        raise
    except Exception as failure:
        log.exception("The problem of job %s could not be recorded", job_id)
        stores.jobs.fail(job_id, internal_error(failure))


def _fit(stores: Stores, job: Job) -> bool:
    record = stores.posteriors.get(job.subject)
    if record is not None and record.is_imported:
        read_again(stores, record)
        stores.jobs.succeed(job.id, done=1, total=1)
        return True
    dataset, parameters = job.spec["dataset"], job.spec["spec"]
    neighbors = neighbors_of(parameters)
    values = stores.datasets.values(dataset)
    on_progress = progress_writer(stores, job)
    clock = StageClock(on_progress)
    posterior = fitted(stores, values, parameters, clock)
    stages = clock.stop()
    record_stages(stages)
    on_progress(1, 1, "caching")
    with stage("caching"):
        sha256 = stores.posteriors.cache(job.subject, posterior, sum(stages.values()))
    arrays = posterior.arrays()
    record = PosteriorRecord(
        id=job.subject,
        dataset=dataset,
        n=posterior.n_points,
        d=values.shape[1],
        spec=recorded(spec_of(parameters), neighbors),  # as requested: noise='auto' is resolved in the posterior
        diagnostics=posterior.diagnostics.to_dict(),
        eigenvalues=[float(value) for value in posterior.eigenvalues],
        seconds=round(sum(stages.values()), 6),
        stages={stage: round(seconds, 6) for stage, seconds in stages.items()},
        arrays={name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in arrays.items()},
        nbytes=sum(array.nbytes for array in arrays.values()),
        provenance={**provenance(), **({ARRAYS: sha256} if job.digests else {})},
        job=job.id,
        created=now_iso(),
        tenant=job.tenant,
    )
    if not stores.posteriors.record(record, while_running=job_key(job.id)):
        raise Cancelled
    for source in filter(None, (dataset, neighbors)):
        if stores.datasets.get(source) is None:  # its deletion preceded the posterior's record
            stores.posteriors.delete(record)
            raise not_found(source)
    RESIDENT.keep(record.arrays_id, posterior, record.nbytes)
    stores.jobs.succeed(job.id, done=1, total=1)  # a short fit has written no progress
    return True


class _ShardTask:
    """Task of a job with shards: makes a shard, and further ones while time is left, because a task costs milliseconds.

    Attributes
    ----------
    has_ended : bool
        Whether a report has completed the job.

    """

    stage = ""  # of the job

    def __init__(self, stores: Stores, job: Job, shard: int, between_groups: BetweenGroups) -> None:
        self._stores = stores
        self._job = job
        self._shard = shard
        self._between_groups = between_groups
        assert job.sharding is not None
        self._sharding = job.sharding
        self._read_seconds = 0.0
        self._until = 0.0  # no shard is taken that would probably end later, in monotonic seconds
        self._began = 0.0  # of the parts of the present shard, but for the time of a read
        self._making: float | None = None  # seconds of the last shard
        self._first = 0  # the first shard that may be taken
        self._next: Future[tuple[int | None, bool]] | None = None
        self._unreported: dict[int, int] = {}  # steps by shard, whose writes were submitted
        self._reported = time.monotonic()
        self.has_ended = False

    def run(self, writer: BackgroundWriter, *, is_repeated: bool) -> None:
        """Make the shards."""
        stores, job = self._stores, self._job
        self._until = time.monotonic() + stores.settings.shard_seconds
        if is_repeated:
            stores.queue.give_back(job, taker=self._shard)
        if job.stage != self.stage:
            writer.submit(self._enter_stage)
        shard = self._shard
        while True:
            self._began, read_before = time.monotonic(), self._read_seconds
            self._make(shard, writer)
            self._making = time.monotonic() - self._began - (self._read_seconds - read_before)
            following, is_requested = (self._next or self._request_next(shard, writer, 1.0)).result()
            self._next, self._unreported = None, {shard: self._sharding.shard_size(shard)}
            if following is None:
                self._report(writer)
                return
            self._between_groups(is_requested)
            shard, self._first = following, following + 1

    def _request_next(self, shard: int, writer: BackgroundWriter, share: float) -> Future[tuple[int | None, bool]]:
        """Open the successor of a shard and take another one, once the shards before are written.

        Assumes that the next shard takes as long as this one, of which a `share` is made. A posterior that took long to
        read is used for as long.
        """
        assert self._making is not None
        ended = time.monotonic() + (1 - share) * self._making
        counts, self._unreported = self._unreported, {}
        call = partial(
            self._stores.queue.next_shard,
            self._job,
            shard,
            taker=self._shard,
            first=self._first,
            has_time=ended + self._making < self._until + 2 * self._read_seconds,
            counts=counts,
        )
        return writer.submit(call)

    def _make(self, shard: int, writer: BackgroundWriter) -> None:
        """Make the missing parts of a shard; the first shard opens the other chains."""
        raise NotImplementedError

    def _open_chains(self, writer: BackgroundWriter) -> None:
        """Enqueue the other chains: the posterior is cached now, so they need not fit it."""
        others = range(1, min(self._job.chains, self._sharding.shards))
        writer.submit(partial(self._stores.queue.enqueue_shards, self._job, others))

    def _enter_stage(self) -> None:
        self._stores.jobs.stage(self._job.id, self.stage)

    def _report(self, writer: BackgroundWriter) -> None:
        """Report the parts that are submitted, once they are written."""
        counts, self._unreported, self._reported = self._unreported, {}, time.monotonic()
        writer.submit(partial(self._advance, counts))

    def _advance(self, counts: Mapping[int, int]) -> None:
        self.has_ended |= self._stores.jobs.advance(self._job.id, self._job.round, counts)


class _DrawsTask(_ShardTask):
    """Task of a draws job.

    Draws are written while the next ones are made. The count of a shard is reported when the shard after it has been
    made, or earlier with that shard's progress, so that it follows the draws and nothing waits for them. A shard with
    at most `PROGRESS_SECONDS` of work reports at its end alone, so the number of commands follows from the work.
    """

    stage = "drawing"

    def __init__(self, stores: Stores, job: Job, shard: int, between_groups: BetweenGroups) -> None:
        super().__init__(stores, job, shard, between_groups)
        self._spec = DrawsSpec.from_dict(job.spec)
        self._presence: dict[int, list[bool]] = {}

    def run(self, writer: BackgroundWriter, *, is_repeated: bool) -> None:
        """Calibrate the scale if necessary, and make the shards."""
        if self._spec.is_auto:
            self._spec = self._spec.at(_calibrated_scale(self._stores, self._job))
        super().run(writer, is_repeated=is_repeated)

    @cached_property
    def _record(self) -> PosteriorRecord:
        return self._stores.posteriors.fetch(self._job.subject)

    @cached_property
    def _posterior(self) -> Posterior:
        """The posterior, read for the first missing draw; sets `_read_seconds`."""
        began = time.monotonic()
        posterior = load_or_fit(self._stores, self._job, self._record)
        self._read_seconds = time.monotonic() - began
        return posterior

    def _make(self, shard: int, writer: BackgroundWriter) -> None:
        """Make the uncached draws of a shard, and submit their writes."""
        stores, spec = self._stores, self._spec
        keys, keep = spec.shard_keys(shard), stores.cache.tier_by_size(spec.nbytes)
        arrays_id, present = self._record.arrays_id, self._present(shard)
        unprepared = [key for key, is_present in zip(keys, present, strict=True) if not is_present]
        size = group_size(self._posterior) if unprepared else len(keys)
        if shard == 0:
            self._open_chains(writer)
        for start in range(0, len(keys), size):
            if start and spec.seconds_per_shard > PROGRESS_SECONDS:
                self._report_progress(writer, shard, start)
                self._between_groups(None)
            if start:
                read = self._read_seconds if shard == self._shard else 0.0
                self._making = (time.monotonic() - self._began - read) * len(keys) / start
            if start + size >= len(keys) and self._making is not None:  # the reply arrives during the last lane group
                self._next = self._request_next(shard, writer, start / len(keys))
            group = zip(keys[start : start + size], present[start : start + size], strict=True)
            if missing := [key for key, is_present in group if not is_present]:
                if spec.total == 1:
                    unprepared = missing = uncached_group(stores.draws, arrays_id, keys[0], size)
                draws, seconds = make_draws(self._posterior, missing)
                store = partial(store_draws, stores.draws, arrays_id, missing, draws, seconds, keep, prepare=unprepared)
                writer.submit(store)
                unprepared = []

    def _present(self, shard: int) -> list[bool]:
        """Return for each draw of a shard whether it is cached; look up those of the following shards together."""
        if shard not in self._presence:
            last = min(shard + max(1, LOOKED_UP // self._spec.per_shard), self._spec.shards)
            keys = {number: self._spec.shard_keys(number) for number in range(shard, last)}
            found = iter(self._stores.draws.contains(self._record.arrays_id, list(chain(*keys.values()))))
            self._presence = {number: list(islice(found, len(keys[number]))) for number in keys}
        return self._presence.pop(shard)

    def _report_progress(self, writer: BackgroundWriter, shard: int, done: int) -> None:
        """Report the first draws of a shard, if the last report is `PROGRESS_SECONDS` ago."""
        if time.monotonic() - self._reported >= PROGRESS_SECONDS:
            self._unreported[shard] = done
            self._report(writer)


class _PartsTask(_ShardTask):
    """Task that makes parts of an analysis. The task whose parts are the last ones enqueues the analysis.

    Each part is cached before it is counted. Its resamples are reported while they are made, but for the last one.
    """

    def __init__(self, stores: Stores, job: Job, shard: int, between_groups: BetweenGroups) -> None:
        super().__init__(stores, job, shard, between_groups)
        assert job.parts is not None
        self._division = job.parts
        self.stage = job.parts.stage
        self._parts = analysis_of(job).parts()
        self._context = TaskContext(stores, job, report=self._report_within)
        self._making_shard = shard
        self._counted = 0  # resamples of the shard before the present part
        self._most = 0  # of the present part that are reported before it is cached

    def run(self, writer: BackgroundWriter, *, is_repeated: bool) -> None:
        """Make the shards, and enqueue the analysis if no shard is missing."""
        queue, job = self._stores.queue, self._job
        if is_repeated and queue.combine(job):
            return
        super().run(writer, is_repeated=is_repeated)
        writer.flush()
        queue.combine(job)

    def _enter_stage(self) -> None:
        self._stores.jobs.stage(self._job.id, self.stage, total=self._division.total)

    def _make(self, shard: int, writer: BackgroundWriter) -> None:
        """Make the uncached parts of a shard."""
        if self._job.posterior is not None:
            self._context.posterior()
        if shard == 0:
            self._open_chains(writer)
        self._making_shard, self._counted = shard, 0
        with stage(self.stage):
            for number in self._division.parts(shard):
                if self._counted:
                    self._between_groups(None)
                size = self._division.sizes[number]
                self._most = size - 1
                if number < len(self._parts):  # another version may have divided the job
                    self._parts[number].make(self._context)
                self._counted += size
                self._advance({shard: self._counted})

    def _report_within(self, done: int, _total: int, _stage: str) -> None:
        """Report resamples of a part, every `PROGRESS_SECONDS`; raises `Cancelled` if the job is not wanted."""
        if time.monotonic() - self._reported >= PROGRESS_SECONDS:
            self._reported = time.monotonic()
            self._advance({self._making_shard: self._counted + min(done, self._most)})


def _analyse(stores: Stores, job: Job, *, round_: int) -> bool:
    if job.round != round_:  # reopened since: another task has it
        return False
    spec = analysis_of(job)
    require_own_numbers(f"The result of job {job.id}", spec.engine)
    result = None
    if not all(stores.cache.contains([spec.cache_key(job.subject)])):
        with stage("analysing"):
            result = spec.run(TaskContext(stores, job))
    stores.jobs.progress(job.id, spec.total, spec.total, "caching")
    if result is not None:
        cache_result(stores, job.subject, spec, result)
    stores.jobs.succeed(job.id)
    return True


def _calibrated_scale(stores: Stores, job: Job) -> float:
    """Return the calibrated scale of a job's posterior; calibrate it if necessary."""
    calibration = stores.posteriors.calibration(job.subject)
    if calibration is None:
        with stage("calibrating"):
            calibration = TaskContext(stores, job, "calibrating: ").calibration().meta
    return float(calibration["scale"])
