"""Records of posteriors that an API process has just read, so that each draw does not read its posterior's again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from service.submission.validation import require_posterior
from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

RECENT_SECONDS = 1.0  # longest time a posterior deleted through another process is still found
MAX_RECENT = 4096


class RecentPosteriors:
    """Records by tenant and id, each for `RECENT_SECONDS`; `stores_of` returns the stores of a tenant."""

    def __init__(self, stores_of: Callable[[str], Stores]) -> None:
        self._stores_of = stores_of
        self._records: dict[tuple[str, str], tuple[PosteriorRecord, float]] = {}

    async def require(self, tenant: str, id_: str) -> PosteriorRecord:
        """Return the record of a fitted posterior; raises as `require_posterior`."""
        records, began = self._records, time.monotonic()
        record, until = records.get((tenant, id_), (None, 0.0))
        if record is None or until < began:
            record = await run_in_threadpool(require_posterior, self._stores_of(tenant), id_)
            if len(records) >= MAX_RECENT:
                records.clear()
            records[tenant, id_] = (record, began + RECENT_SECONDS)  # lost if `clear` was called meanwhile
        return record

    async def state(self, tenant: str, id_: str) -> str | None:
        """Return the `state` of a posterior, or None without one; raises `redis.RedisError`."""
        try:
            return (await self.require(tenant, id_)).state
        except ProblemError:
            return None

    def clear(self) -> None:
        """Forget all records, because one may have been deleted."""
        self._records = {}
