"""Cost of HTTP, queue and cache over the engine, measured on a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.service import cached, concurrency, jobs, single
from bench.service.deployment import running_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report.table import Row

WORKERS = 1  # two cores: one computes, one has the API process, the servers and the clients


def rows(largest: int) -> Iterator[Row]:
    """Measure single draws, concurrent clients, jobs, a small fit and cached draws."""
    with running_service(WORKERS, 1) as service:
        yield from single.rows(service, largest)
        yield from concurrency.rows(service, WORKERS)
        yield from jobs.rows(service, largest)
        yield from cached.rows(service)
