"""The stores of one process, connected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from worker.cache import ArrayCache
from worker.counts import Counts
from worker.datasets import DatasetStore
from worker.embedding_records import EmbeddingStore
from worker.job_scripts import CHANGED, ENDED
from worker.jobs import JobStore
from worker.keys import KeyStore
from worker.news import News
from worker.posteriors import PosteriorStore
from worker.queue import TaskQueue
from worker.quotas import Quotas
from worker.settings import Settings, SettingsError
from worker.warm import WarmPosteriors

READ_SIZE = 2**20  # redis-py's 32 KB halves the speed of large values
ARRAY_SECONDS = 60.0  # its 5 s are too short for hundreds of MB on a busy machine


@dataclass(frozen=True)
class Stores:
    """Everything a request or a task reads and writes; a task sees all of it, a request what is its tenant's."""

    settings: Settings
    client: redis.Redis
    cache: ArrayCache
    datasets: DatasetStore
    posteriors: PosteriorStore
    embeddings: EmbeddingStore
    jobs: JobStore
    queue: TaskQueue
    endings: News
    changes: News
    warm: WarmPosteriors
    counts: Counts
    keys: KeyStore
    quotas: Quotas
    tenant: str | None = None

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Return the stores of these settings; nothing is sent yet.

        Raises
        ------
        SettingsError
            When a server's URL is missing or malformed, or `quotas` cannot be read.

        """
        client = connect_queue(settings)
        arrays = _connect(settings.cache_url, "GLLE_CACHE_URL", timeout=ARRAY_SECONDS)
        counts = Counts(client)
        cache = ArrayCache(arrays, budget=settings.cache_bytes, ttl=settings.cache_ttl, counts=counts)
        jobs = JobStore(client, ttl=settings.job_ttl)
        return cls(
            settings=settings,
            client=client,
            cache=cache,
            datasets=DatasetStore.under(settings.data_dir),
            posteriors=PosteriorStore(client, cache),
            embeddings=EmbeddingStore(client, ttl=settings.job_ttl),
            jobs=jobs,
            queue=TaskQueue(client, jobs, settings),
            endings=News(client, ENDED),
            changes=News(client, CHANGED),
            warm=WarmPosteriors(settings.warm_bytes),
            counts=counts,
            keys=KeyStore.under(settings.data_dir),
            quotas=Quotas(settings),
        )

    def of(self, tenant: str) -> Self:
        """Return the same stores as a tenant sees them: what another has is not there, by any id and in any list."""
        quota = self.quotas.of(tenant)
        return replace(
            self,
            tenant=tenant,
            datasets=self.datasets.of(tenant, quota.bytes),
            posteriors=self.posteriors.of(tenant),
            embeddings=self.embeddings.of(tenant),
            jobs=self.jobs.of(tenant, quota.jobs),
        )

    def close(self) -> None:
        """Close the connections."""
        self.endings.close()
        self.changes.close()
        self.client.close()
        self.cache.close()


@cache
def stores() -> Stores:
    """Return the stores of this process's environment, connected once."""
    return Stores.connect(Settings.from_env())


def connect_queue(settings: Settings) -> redis.Redis:
    """Return a client of the queue's Redis."""
    return _connect(settings.redis_url, "GLLE_REDIS_URL", timeout=5.0)


def _connect(url: str, variable: str, *, timeout: float) -> redis.Redis:
    if not url:
        raise SettingsError(f"{variable} is not set. Set it to the Redis to use, or start `glle up`.")
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=2.0,
            socket_read_size=READ_SIZE,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 2),
        )
    except ValueError as error:
        raise SettingsError(f"{variable} is not a Redis URL: {error}") from error
