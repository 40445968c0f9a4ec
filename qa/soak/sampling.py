"""Samples of the memory of each process and server of a deployment, every few seconds."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import redis

from qa.background import repeated
from qa.faults.chaos.processes import RESIDENTS, tree
from worker.jobs.rq_types import QUEUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.system.conftest import Up

_FIELDS = re.compile(r"^(Rss|Pss|Private_Clean|Private_Dirty):\s+(\d+) kB", re.MULTILINE)
MIB = 2**20


@dataclass(frozen=True)
class Usage:
    """Memory of a process (resident, proportional, unique bytes), descriptors and threads."""

    rss: int
    pss: int
    uss: int
    fds: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the sample of a process, or None if it has ended."""
        folder = Path(f"/proc/{pid}")
        try:
            fields = {
                name: 1024 * int(kilobytes) for name, kilobytes in _FIELDS.findall(_read(folder / "smaps_rollup"))
            }
            fds = len(list((folder / "fd").iterdir()))
            threads = len(list((folder / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            return None
        if "Rss" not in fields:  # a zombie
            return None
        return cls(fields["Rss"], fields["Pss"], fields["Private_Clean"] + fields["Private_Dirty"], fds, threads)


@dataclass(frozen=True)
class Sample:
    """Samples of all processes and servers by name, at `at` seconds from the start."""

    at: float
    processes: dict[str, Usage]
    servers: dict[str, float]


@contextmanager
def sampled(up: Up, seconds: float = 5.0) -> Iterator[list[Sample]]:
    """Sample a running `glle up` until the context exits, with `seconds` between two samples."""
    samples: list[Sample] = []
    names, started = processes(up), time.monotonic()
    clients = {"queue": up.redis("GLLE_REDIS_URL"), "cache": up.redis("GLLE_CACHE_URL")}

    def sample() -> None:
        usages = {name: usage for name, pid in names.items() if (usage := Usage.of(pid)) is not None}
        samples.append(Sample(time.monotonic() - started, usages, _servers(clients)))

    with clients["queue"], clients["cache"], repeated(sample, seconds=seconds):
        yield samples


def _servers(clients: Mapping[str, redis.Redis]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, client in clients.items():
        with suppress(redis.RedisError):
            result = client.info()
            figures[f"{name} keys"] = result.get("db0", {}).get("keys", 0)
            figures[f"{name} used MiB"] = result["used_memory"] / MIB
            figures[f"{name} clients"] = result["connected_clients"]
            figures[f"{name} evicted"] = result["evicted_keys"]
    with suppress(redis.RedisError):
        figures["queue length"] = float(sum(clients["queue"].llen(f"rq:queue:{name}") for name in QUEUES))
    return figures


def processes(up: Up) -> dict[str, int]:
    """Return the pids of a tree's lasting processes by name."""
    pids = {"head": up.process.pid}
    for number, pid in enumerate(up.workers(), 1):
        pids[f"worker {number}"] = pid
    for number, pid in enumerate(up.apis(), 1):
        pids[f"API {number}"] = pid
    pids["queue server"], pids["cache server"] = sorted(up.children("valkey-server"))
    residents = Counter[str]()
    for process in tree(up.process.pid):
        if process.kind in RESIDENTS.values():
            residents[process.kind] += 1
            pids[f"{process.kind} {residents[process.kind]}"] = process.pid
    return pids


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii")
