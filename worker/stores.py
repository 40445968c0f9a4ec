"""All stores of one process (data sets, posteriors, jobs, keys ...), connected to Redis and to the stored files."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self

from worker.analyses.embedding_records import EmbeddingStore
from worker.base.settings import Settings
from worker.connections.clients import SOCKET_TIMEOUT_SECONDS, connect_cache, connect_queue, subscriber
from worker.connections.loop_commands import LoopCommands
from worker.connections.retry import CircuitBreaker, RetryPolicy
from worker.jobs.draw_stream import DRAWN, DrawRequests, draw_outcomes
from worker.jobs.lua_scripts import ENDED
from worker.jobs.notifications import Notifications
from worker.jobs.queue import TaskQueue
from worker.jobs.store import JobStore
from worker.observability.counters import Counters
from worker.observability.live_workers import PATIENCE_SECONDS
from worker.records.quotas import Quotas
from worker.records.shares import Shares
from worker.storage.api_keys import KeyStore
from worker.storage.datasets import DatasetStore
from worker.storage.entry_cache import EntryCache
from worker.storage.free_space import QueueCapacity
from worker.storage.mark import RecordsMark
from worker.storage.object_store.backend import MAX_RETRIES, Bucket
from worker.storage.object_store.files import ObjectFiles
from worker.storage.posteriors import PosteriorStore
from worker.storage.results import ResultStore

# Socket timeout of a worker's client of the cache. It is longer than that of an API process (`SOCKET_TIMEOUT_SECONDS`),
# because one call may write many draws.
WRITE_SECONDS = 20.0
# A worker repeats a failed request to the object store this often, because what it writes took long to compute.
PATIENT_RETRIES = 30

if TYPE_CHECKING:
    import redis

    from worker.analyses.base import AnalysisSpec
    from worker.records.cache_entry import Entry
    from worker.storage.file_records import FileStore


@dataclass(frozen=True)
class Stores:
    """The stores that an HTTP request or a task uses.

    A task sees the data of all tenants. A request uses `for_tenant`, so that only the data of its tenant are visible.
    """

    settings: Settings
    client: redis.Redis
    cache: EntryCache
    files: ObjectFiles
    results: ResultStore
    datasets: DatasetStore
    posteriors: PosteriorStore
    embeddings: EmbeddingStore
    jobs: JobStore
    queue: TaskQueue
    requests: DrawRequests
    endings: Notifications
    drawn: Notifications
    commands: LoopCommands
    counts: Counters
    keys: KeyStore
    mark: RecordsMark
    quotas: Quotas
    shares: Shares
    room: QueueCapacity
    tenant: str | None = None

    @classmethod
    def connect(cls, settings: Settings, *, patient: bool = False) -> Self:
        """Return stores on the Redis servers and the files that the settings name; nothing is sent to a server yet.

        With `patient`, as in a worker, each call waits up to `PATIENCE_SECONDS` for a server that does not answer or
        fails over. Otherwise calls fail at once while a server does not answer: see `worker.connections.retry`.

        Raises `SettingsError` if the URL of a Redis server is missing or malformed, and for an invalid `store_url` or
        `quotas`.
        """
        arrays_seconds = WRITE_SECONDS if patient else SOCKET_TIMEOUT_SECONDS
        breakers = (
            CircuitBreaker(SOCKET_TIMEOUT_SECONDS, "GLLE_REDIS_URL"),
            CircuitBreaker(arrays_seconds, "GLLE_CACHE_URL"),
        )
        patience = [RetryPolicy(PATIENCE_SECONDS, breaker.variable) for breaker in breakers]
        retry, arrays_retry = patience if patient else breakers
        client = connect_queue(settings, SOCKET_TIMEOUT_SECONDS, retry)
        arrays = connect_cache(settings, arrays_seconds, arrays_retry)
        connect_events = subscriber(settings.redis_url, "GLLE_REDIS_URL")
        connect_arrays = subscriber(settings.cache_url, "GLLE_CACHE_URL")
        commands = LoopCommands(connect_arrays, breakers[1], arrays_seconds)
        counts = Counters(client)
        retries = PATIENT_RETRIES if patient else MAX_RETRIES
        bucket = Bucket(settings.store_url, counts=counts, retries=retries) if settings.store_url else None
        files = ObjectFiles.from_settings(settings, bucket, arrays)
        results = ResultStore(client, files, settings.job_ttl)
        mark = RecordsMark(client, files.bucket)
        room = QueueCapacity(client, settings)
        keys = KeyStore(client, mark)
        quotas = Quotas(settings, keys.has_keys)
        jobs = JobStore(client, ttl=settings.job_ttl, room=room)
        queue = TaskQueue(client, jobs, settings, quotas, keys.exist)
        reply = f"{DRAWN}:{secrets.token_hex(8)}"
        return cls(
            settings=settings,
            client=client,
            cache=EntryCache(arrays, commands, settings.cache_bytes, counts),
            files=files,
            results=results,
            datasets=DatasetStore(client, files, room, results),
            posteriors=PosteriorStore(client, files, results),
            embeddings=EmbeddingStore(client, files, results),
            jobs=jobs,
            queue=queue,
            requests=DrawRequests(commands, reply),
            endings=Notifications(connect_events, ENDED),
            drawn=Notifications(connect_arrays, reply, draw_outcomes),
            commands=commands,
            counts=counts,
            keys=keys,
            mark=mark,
            quotas=quotas,
            shares=Shares(quotas.limit),
            room=room,
        )

    def find_result(self, spec: AnalysisSpec, subject: str) -> Entry | None:
        """Return the stored result of an analysis, or None if there is none.

        `subject` is the id of the posterior or data set that is analyzed. Raises `ProblemError` (``result-damaged``,
        ``embedding-damaged``, ``store-unavailable``).
        """
        key = spec.key(subject)
        return self.embeddings.find_entry(key) if key.startswith("emb_") else self.results.find(key)

    def has_result(self, spec: AnalysisSpec, subject: str) -> bool:
        """Return whether the result of an analysis is stored.

        `subject` is the id of the posterior or data set that is analyzed.
        """
        key = spec.key(subject)
        return self.has_embedding(key) if key.startswith("emb_") else self.results.contains([key])[0]

    def has_embedding(self, id_: str) -> bool:
        """Return whether the coordinates of an embedding are stored; False if a job has yet to compute them."""
        record = self.embeddings.get(id_)
        return record is not None and record.file is not None

    def owner(self, id_: str) -> FileStore[Any]:
        """Return the store of data sets, posteriors or embeddings to which an id belongs, by the id's prefix."""
        stores: dict[str, FileStore[Any]] = {"ds": self.datasets, "post": self.posteriors, "emb": self.embeddings}
        return stores[id_.partition("_")[0]]

    def max_bytes(self, tenant: str) -> int:
        """Return how many bytes of files a tenant may store; 0 means no limit."""
        return self.quotas.for_tenant(tenant).bytes

    @property
    def with_files(self) -> tuple[FileStore[Any], ...]:
        """The stores whose records name stored files: data sets, posteriors, embeddings and results."""
        return self.datasets, self.posteriors, self.embeddings, self.results

    def for_tenant(self, tenant: str) -> Self:
        """Return stores that show only the data of one tenant: other data are not listed, and their ids not found."""
        quota = self.quotas.for_tenant(tenant)
        return replace(
            self,
            tenant=tenant,
            datasets=self.datasets.for_tenant(tenant, quota.bytes),
            posteriors=self.posteriors.for_tenant(tenant, quota.posteriors),
            embeddings=self.embeddings.for_tenant(tenant),
            results=self.results.for_tenant(tenant),
            requests=self.requests.for_tenant(tenant, partial(self.quotas.limit, "draws", tenant)),
            jobs=self.jobs.for_tenant(tenant, quota, partial(self.quotas.limit, "jobs", tenant)),
        )

    def stop_waiting(self) -> None:
        """From now on, let calls to a Redis server that does not answer fail at once: this process is about to end."""
        for client, variable in ((self.client, "GLLE_REDIS_URL"), (self.cache.client, "GLLE_CACHE_URL")):
            client.set_retry(RetryPolicy(0.0, variable))

    def close(self) -> None:
        """Close the connections."""
        self.endings.close()
        self.drawn.close()
        self.commands.close()
        self.client.close()
        self.cache.client.close()


@cache
def process_stores() -> Stores:
    """Return the stores of this worker process, made at the first call from its environment variables.

    Their calls wait for a server that does not answer (see `patient` of `Stores.connect`).
    """
    return Stores.connect(Settings.from_env(), patient=True)
