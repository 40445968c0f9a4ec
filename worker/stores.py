"""The stores of one process, connected to its servers."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Self

from worker.analyses.embedding_records import KIND as EMBEDDING
from worker.analyses.embedding_records import EmbeddingStore
from worker.base.settings import Settings
from worker.base.versions import numbers_of
from worker.connections.clients import connect_cache, connect_queue, subscriber
from worker.connections.loop_commands import LoopCommands
from worker.connections.retry import CircuitBreaker, RetryPolicy
from worker.jobs.draw_stream import DRAWN, DrawRequests, draw_outcomes
from worker.jobs.lua_scripts import CHANGED, ENDED
from worker.jobs.notifications import Notifications
from worker.jobs.queue import TaskQueue
from worker.jobs.store import JobStore
from worker.observability.counters import Counters
from worker.observability.live_workers import PATIENCE_SECONDS
from worker.records.quotas import Quotas
from worker.storage.api_keys import KeyStore
from worker.storage.array_cache import ArrayCache, DrawCache
from worker.storage.datasets import DatasetStore
from worker.storage.free_space import QueueCapacity
from worker.storage.object_store.backend import RETRIES, Bucket
from worker.storage.object_store.files import ObjectFiles
from worker.storage.object_store.results import ObjectIndex, ResultStore
from worker.storage.posteriors import PosteriorStore

ANSWER_SECONDS = 5.0  # time-out of an answer
WRITE_SECONDS = 20.0  # time-out of a write of many small arrays at once
PATIENT_RETRIES = 30  # of a worker's failed request to the object store: the computation took longer

if TYPE_CHECKING:
    import redis


@dataclass(frozen=True)
class Stores:
    """All data of a request or a task; a task sees all tenants' data, a request those of its tenant."""

    settings: Settings
    client: redis.Redis
    cache: ArrayCache
    draws: DrawCache
    datasets: DatasetStore
    posteriors: PosteriorStore
    embeddings: EmbeddingStore
    jobs: JobStore
    queue: TaskQueue
    requests: DrawRequests
    endings: Notifications
    changes: Notifications
    drawn: Notifications
    commands: LoopCommands
    counts: Counters
    keys: KeyStore
    quotas: Quotas
    room: QueueCapacity
    tenant: str | None = None

    @classmethod
    def connect(cls, settings: Settings, *, patient: bool = False) -> Self:
        """Return the stores of these settings; nothing is sent yet.

        With `patient`, as in a worker, each call waits for a server that is away or fails over (`PATIENCE_SECONDS`).
        Otherwise calls fail at once while a server does not answer: see `worker.connections.retry`.

        Raises `SettingsError` for a missing or malformed URL, a `store_url` without a back end, and invalid `quotas` or
        `allow_other_bits`.
        """
        arrays_seconds = WRITE_SECONDS if patient else ANSWER_SECONDS
        breakers = CircuitBreaker(ANSWER_SECONDS, "GLLE_REDIS_URL"), CircuitBreaker(arrays_seconds, "GLLE_CACHE_URL")
        patience = [RetryPolicy(PATIENCE_SECONDS, breaker.variable) for breaker in breakers]
        retry, arrays_retry = patience if patient else breakers
        client = connect_queue(settings, ANSWER_SECONDS, retry)
        arrays = connect_cache(settings, arrays_seconds, arrays_retry)
        connect_events = subscriber(settings.redis_url, "GLLE_REDIS_URL")
        connect_arrays = subscriber(settings.cache_url, "GLLE_CACHE_URL")
        commands = LoopCommands(connect_arrays, breakers[1], arrays_seconds)
        counts = Counters(client)
        retries = PATIENT_RETRIES if patient else RETRIES
        bucket = Bucket(settings.store_url, counts=counts, retries=retries) if settings.store_url else None
        files = ObjectFiles.of(settings, bucket)
        objects = None
        if bucket is not None:
            objects = ResultStore(files, ObjectIndex(client), ttl=settings.cache_ttl, max_bytes=settings.store_bytes)
        cache = ArrayCache(arrays, budget=settings.cache_bytes, ttl=settings.cache_ttl, counts=counts, objects=objects)
        room = QueueCapacity(client, settings)
        quotas = Quotas(settings)
        jobs = JobStore(client, ttl=settings.job_ttl, numbers=numbers_of(settings), room=room)
        queue = TaskQueue(client, jobs, settings)
        reply = f"{DRAWN}:{secrets.token_hex(8)}"
        return cls(
            settings=settings,
            client=client,
            cache=cache,
            draws=DrawCache(cache, commands),
            datasets=DatasetStore(client, files, room),
            posteriors=PosteriorStore(client, cache, files),
            embeddings=EmbeddingStore(client, EMBEDDING),
            jobs=jobs,
            queue=queue,
            requests=DrawRequests(commands, reply),
            endings=Notifications(connect_events, ENDED),
            changes=Notifications(connect_events, CHANGED),
            drawn=Notifications(connect_arrays, reply, draw_outcomes),
            commands=commands,
            counts=counts,
            keys=KeyStore(client),
            quotas=quotas,
            room=room,
        )

    @property
    def numbers(self) -> str:
        """The numerics version of the deployment's results."""
        return numbers_of(self.settings)

    def of(self, tenant: str) -> Self:
        """Return the stores as a tenant sees them: other tenants' data are in no list, and no id finds them."""
        quota = self.quotas.of(tenant)
        return replace(
            self,
            tenant=tenant,
            datasets=self.datasets.of(tenant, quota.bytes),
            posteriors=self.posteriors.of(tenant, quota.posteriors),
            embeddings=self.embeddings.of(tenant),
            requests=self.requests.of(tenant),
            jobs=self.jobs.of(tenant, quota),
        )

    def stop_waiting(self) -> None:
        """Let each further call fail soon if its server is away: this process is about to end."""
        for client, variable in ((self.client, "GLLE_REDIS_URL"), (self.cache.client, "GLLE_CACHE_URL")):
            client.set_retry(RetryPolicy(0.0, variable))

    def close(self) -> None:
        """Close the connections."""
        self.endings.close()
        self.changes.close()
        self.drawn.close()
        self.commands.close()
        self.client.close()
        self.cache.close()


@cache
def process_stores() -> Stores:
    """Return the patient stores of a worker process, connected once by the settings of its environment."""
    return Stores.connect(Settings.from_env(), patient=True)
