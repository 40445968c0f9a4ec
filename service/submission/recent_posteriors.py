"""Records of posteriors that an API process has just read, so that each draw does not read its posterior's again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from service.submission.validation import require_posterior

if TYPE_CHECKING:
    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

RECENT_SECONDS = 1.0  # longest time a posterior deleted through another process is still found
MAX_RECENT = 256


class RecentPosteriors:
    """Records by tenant and id, each for `RECENT_SECONDS`."""

    def __init__(self) -> None:
        self._records: dict[tuple[str | None, str], tuple[PosteriorRecord, float]] = {}

    def require(self, stores: Stores, id_: str) -> PosteriorRecord:
        """Return the record of a fitted posterior; raises as `require_posterior`."""
        key, began = (stores.tenant, id_), time.monotonic()
        record, until = self._records.get(key, (None, 0.0))
        if record is None or until < began:
            record = require_posterior(stores, id_)
            if len(self._records) >= MAX_RECENT:
                self._records.clear()
            self._records[key] = (record, began + RECENT_SECONDS)
        return record

    def clear(self) -> None:
        """Forget all records, because one may have been deleted."""
        self._records.clear()
