"""The stores of one process, connected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Self

from worker.analyses.embedding_records import EmbeddingStore
from worker.base.settings import Settings
from worker.connections.circuit_breaker import CircuitBreaker
from worker.connections.clients import connect_cache, connect_queue
from worker.connections.retry import RetryPolicy
from worker.jobs.lua_scripts import CHANGED, ENDED
from worker.jobs.notifications import Notifications
from worker.jobs.queue import TaskQueue
from worker.jobs.store import JobStore
from worker.observability.counters import Counters
from worker.storage.datasets import DatasetStore
from worker.storage.free_space import QueueCapacity
from worker.storage.object_store.store import ObjectStore
from worker.storage.posteriors import PosteriorStore
from worker.storage.tiered_cache import TieredCache
from worker.tenancy.api_keys import KeyStore
from worker.tenancy.quotas import JobLimits, Quota, Quotas

ANSWER_SECONDS = 5.0  # for which a server may be silent
WRITE_SECONDS = 20.0  # for which many small arrays may be on their way to it at once

if TYPE_CHECKING:
    import redis


@dataclass(frozen=True)
class Stores:
    """Everything a request or a task reads and writes; a task sees all of it, a request what is its tenant's."""

    settings: Settings
    client: redis.Redis
    cache: TieredCache
    datasets: DatasetStore
    posteriors: PosteriorStore
    embeddings: EmbeddingStore
    jobs: JobStore
    queue: TaskQueue
    endings: Notifications
    changes: Notifications
    counts: Counters
    keys: KeyStore
    quotas: Quotas
    room: QueueCapacity
    tenant: str | None = None

    @classmethod
    def connect(cls, settings: Settings, *, patient: bool = False) -> Self:
        """Return the stores of these settings; nothing is sent yet.

        Parameters
        ----------
        patient
            Whether each call waits for a server that is away or changes (GLLE_REDIS_PATIENCE), as a worker's does; a
            request has no time for that when one before it had no answer: see `worker.connections.circuit_breaker`.

        Raises
        ------
        SettingsError
            When a server's URL is missing or malformed, `store_url` has no back end, or `quotas` cannot be read.

        """
        arrays_seconds = WRITE_SECONDS if patient else ANSWER_SECONDS
        client, arrays = (
            connect(settings, seconds, RetryPolicy(settings.redis_patience) if patient else CircuitBreaker(seconds))
            for connect, seconds in ((connect_queue, ANSWER_SECONDS), (connect_cache, arrays_seconds))
        )
        counts = Counters(client)
        cache = TieredCache(
            arrays,
            budget=settings.cache_bytes,
            ttl=settings.cache_ttl,
            counts=counts,
            objects=ObjectStore.of(settings, client, counts),
        )
        room = QueueCapacity(client, settings)
        quotas = Quotas(settings)
        jobs = JobStore(client, ttl=settings.job_ttl, room=room)
        return cls(
            settings=settings,
            client=client,
            cache=cache,
            datasets=DatasetStore.under(settings.data_dir),
            posteriors=PosteriorStore(client, cache),
            embeddings=EmbeddingStore(client, ttl=settings.job_ttl),
            jobs=jobs,
            queue=TaskQueue(client, jobs, settings),
            endings=Notifications(connect_queue(settings), ENDED),  # of their own: silence of the news means nothing
            changes=Notifications(connect_queue(settings), CHANGED),
            counts=counts,
            keys=KeyStore.under(settings.data_dir),
            quotas=quotas,
            room=room,
        )

    def of(self, tenant: str) -> Self:
        """Return the same stores as a tenant sees them: what another has is not there, by any id and in any list."""
        quota = self.quotas.of(tenant)
        return replace(
            self,
            tenant=tenant,
            datasets=self.datasets.of(tenant, quota.bytes),
            posteriors=self.posteriors.of(tenant, quota.posteriors),
            embeddings=self.embeddings.of(tenant),
            jobs=self.jobs.of(tenant, _job_limits(self.settings, quota)),
        )

    def close(self) -> None:
        """Close the connections."""
        self.endings.close()
        self.changes.close()
        self.client.close()
        self.cache.close()


def _job_limits(settings: Settings, quota: Quota) -> JobLimits:
    """Return what bounds the jobs of a tenant of this quota."""
    return JobLimits(open=quota.jobs, all_open=settings.max_jobs, ended=quota.records)


@cache
def stores() -> Stores:
    """Return the stores of this process's environment, as a worker has them, connected once."""
    return Stores.connect(Settings.from_env(), patient=True)
