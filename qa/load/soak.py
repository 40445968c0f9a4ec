"""`python -m qa.load.soak`: run `glle up` under ten times its usual load, and check that nothing grows.

Memory, descriptors and latency must stay flat for half an hour. The usual load is ten users with one operation every
ten seconds each, from the mix of `qa.load`: uploads, fits, draws, summaries, embeddings, reads, cancels, deletions.
Records expire soon and caches are small, so that both reach their steady state during the warm-up.

What is flat is measured after the warm-up, by comparing its first half with the second. The medians of a process's
resident memory may differ by 5 %, and the medians of its descriptors and of its threads by two. (Proportional and
unique memory change with every fork.) Each percentile of the latency is computed in ten windows of time. The 95 %
confidence interval of the slope (Theil and Sen) must not lie above a rise of 5 % over the measured time. Noise of a
shared machine widens the interval without raising it.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import numpy as np
import redis
from scipy import stats

from qa.faults.chaos.killer import RESIDENTS, tree
from qa.frame import align, repeat, say, write_report
from qa.load.ledger import Ledger
from qa.load.running import Load, run
from tests.system.conftest import running
from worker.records.job import QUEUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from qa.load.ledger import Attempt
    from tests.system.conftest import Up

_FIELDS = re.compile(r"^(Rss|Pss|Private_Clean|Private_Dirty):\s+(\d+) kB", re.MULTILINE)
MIB = 2**20
ALLOWED = 0.05  # relative growth of memory or latency that counts as flat
ALLOWED_COUNT = 2  # growth in the number of descriptors or threads that counts as flat
ALLOWED_WAITING = 20  # growth in the number of waiting tasks that counts as flat
WINDOWS = 10
MIN_ATTEMPTS = {50: 5, 95: 20, 99: 50}  # minimum number of attempts for a percentile
HEAD = ("series", "unit", "1st half", "2nd half", "change %", "slope, 95 %", "", "curve: medians of ten windows")
USUAL = 1.0  # operations per second of the usual load
CLIENTS = 10
AT_ONCE = 60  # concurrent requests, more than the service has threads
RETENTION_SECONDS = 60
SETTINGS = {
    "GLLE_HEARTBEAT": "5",
    "GLLE_LOG_LEVEL": "warning",
    "GLLE_JOB_TTL": str(RETENTION_SECONDS),
    "GLLE_CACHE_BYTES": str(6 * 2**20),
}


@dataclass(frozen=True)
class Usage:
    """What a process uses: resident, proportional and unique memory in bytes, descriptors and threads."""

    rss: int
    pss: int
    uss: int
    fds: int
    threads: int

    @classmethod
    def from_pid(cls, pid: int) -> Self | None:
        """Read from /proc what a process uses; None if the process has ended."""
        folder = Path(f"/proc/{pid}")
        try:
            fields = {
                name: 1024 * int(kilobytes)
                for name, kilobytes in _FIELDS.findall((folder / "smaps_rollup").read_text())
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
    """What all processes use, by name, and numbers of the Redis servers, at `at` seconds after the start."""

    at: float
    processes: dict[str, Usage]
    servers: dict[str, float]


@contextmanager
def take_samples(up: Up, seconds: float = 5.0) -> Iterator[list[Sample]]:
    """Take samples of a running `glle up` during the context, every `seconds`; yield the growing list."""
    samples: list[Sample] = []
    names, started = processes(up), time.monotonic()
    clients = {"queue": up.redis("GLLE_REDIS_URL"), "cache": up.redis("GLLE_CACHE_URL")}

    def sample() -> None:
        usages = {name: usage for name, pid in names.items() if (usage := Usage.from_pid(pid)) is not None}
        samples.append(Sample(time.monotonic() - started, usages, _servers(clients)))

    with clients["queue"], clients["cache"], repeat(sample, seconds=seconds):
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
    """Return the pids of the processes of `glle up`, by name; work-horses, which end with their tasks, are left out."""
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


@dataclass(frozen=True)
class Verdict:
    """Whether a measured quantity stayed flat.

    Parameters
    ----------
    what, unit
        Name and unit of the quantity.
    first, second
        Medians in the first and the second half of the measured time.
    low, high
        Confidence interval of the slope: relative change over the whole time.
    curve
        Medians in consecutive windows of time.

    """

    what: str
    unit: str
    first: float
    second: float
    low: float
    high: float
    is_flat: bool
    curve: tuple[float, ...] = ()

    @property
    def change(self) -> float:
        """Relative change of the median from the first half to the second."""
        return self.second / self.first - 1 if self.first else 0.0

    def cells(self) -> tuple[str, ...]:
        """Return the cells of a row of the table, as in `HEAD`."""
        span = f"{100 * self.low:+.1f} to {100 * self.high:+.1f}"
        figures = (f"{self.first:.2f}", f"{self.second:.2f}", f"{100 * self.change:+.1f}", span)
        curve = " ".join(f"{value:.3g}" for value in self.curve)
        return (self.what, self.unit, *figures, "flat" if self.is_flat else "NOT FLAT", curve)


def process_verdicts(samples: Sequence[Sample], warm_up: float) -> list[Verdict]:
    """Return whether memory, descriptors and threads of each process are flat; a process that has ended is not.

    `warm_up` is the number of seconds whose samples are left out.
    """
    measured = [sample for sample in samples if sample.at >= warm_up]
    names = list(samples[0].processes)
    verdicts = []
    for name in names:
        present = [sample for sample in measured if name in sample.processes]
        if len(present) < len(measured):
            verdicts.append(Verdict(f"{name}: ended", "", 1, 0, -1, -1, is_flat=False))
            continue
        times = np.array([sample.at for sample in present])
        usages = [sample.processes[name] for sample in present]
        verdicts.append(_verdict(f"{name}: resident", "MiB", times, np.array([usage.rss for usage in usages]) / MIB))
        verdicts.append(_verdict(f"{name}: descriptors", "", times, np.array([usage.fds for usage in usages])))
        verdicts.append(_verdict(f"{name}: threads", "", times, np.array([usage.threads for usage in usages])))
    return verdicts


def server_verdicts(samples: Sequence[Sample], warm_up: float) -> list[Verdict]:
    """Return whether the memory of each Redis server and the number of waiting tasks are flat.

    A growing queue means that this machine cannot sustain the load, so that latency is meaningless.
    """
    measured = [sample for sample in samples if sample.at >= warm_up]
    times = np.array([sample.at for sample in measured])
    waiting = np.array([sample.servers.get("queue length", np.nan) for sample in measured])
    first, second = _halves(times, waiting)
    low, high = _slope(times, waiting)
    verdicts = [
        Verdict(
            "queue: tasks that wait", "", first, second, low, high, second <= first + ALLOWED_WAITING, _curve(waiting)
        )
    ]
    for name in ("queue used MiB", "cache used MiB"):
        present = [sample for sample in measured if name in sample.servers]
        times = np.array([sample.at for sample in present])
        values = np.array([sample.servers[name] for sample in present])
        verdicts.append(_verdict(name.replace(" used MiB", " server: used"), "MiB", times, values))
    return verdicts


def latency_verdicts(attempts: Sequence[Attempt], started: float, warm_up: float) -> list[Verdict]:
    """Return whether percentiles of the latency are flat: of all attempts, and of each operation with enough attempts.

    Parameters
    ----------
    started
        Start of the load (`time.time`).
    warm_up
        Seconds after the start whose attempts are left out.

    """
    measured = [attempt for attempt in attempts if attempt.at - started >= warm_up and attempt.status not in {0, 503}]
    kinds = {"all": measured}
    for attempt in measured:
        kinds.setdefault(attempt.operation, []).append(attempt)
    verdicts = []
    for kind, group in sorted(kinds.items()):
        times = np.array([attempt.at for attempt in group])
        seconds = np.array([attempt.seconds for attempt in group])
        edges = np.linspace(started + warm_up, max(attempt.at for attempt in measured), WINDOWS + 1)[1:-1]
        windows = [seconds[np.digitize(times, edges) == number] for number in range(WINDOWS)]
        for level, min_attempts in MIN_ATTEMPTS.items():
            if min(map(len, windows)) >= min_attempts:
                values = 1000 * np.array([np.percentile(window, level) for window in windows])
                first, second = np.median(values[: WINDOWS // 2]), np.median(values[WINDOWS // 2 :])
                low, high = _slope(np.arange(WINDOWS), values)
                verdicts.append(
                    Verdict(f"{kind}: p{level}", "ms", first, second, low, high, bool(low <= ALLOWED), tuple(values))
                )
    return verdicts


def _verdict(what: str, unit: str, times: Any, values: Any) -> Verdict:
    """Return whether a series is flat: bytes (with a unit) by their relative change, counts by their difference."""
    (first, second), (low, high) = _halves(times, values), _slope(times, values)
    is_flat = abs(second / first - 1) <= ALLOWED if unit else abs(second - first) <= ALLOWED_COUNT
    return Verdict(what, unit, first, second, low, high, is_flat, _curve(values))


def _curve(values: Any) -> tuple[float, ...]:
    """Return the medians of `WINDOWS` consecutive windows, or all values if there are fewer."""
    return tuple(float(np.median(window)) for window in np.array_split(values, min(WINDOWS, len(values))))


def _halves(times: Any, values: Any) -> tuple[float, float]:
    middle = (times[0] + times[-1]) / 2
    return float(np.median(values[times <= middle])), float(np.median(values[times > middle]))


def _slope(times: Any, values: Any) -> tuple[float, float]:
    """Return the 95 % confidence interval of the change over the whole time, relative to the median."""
    _, _, low, high = stats.theilslopes(values, times, 0.95)
    scale = (times[-1] - times[0]) / max(abs(float(np.median(values))), 1e-9)
    return float(low * scale), float(high * scale)


def main() -> int:
    """Run the load, print the table, and write samples and outcomes; return 1 unless all is flat and right."""
    parser = argparse.ArgumentParser(prog="python -m qa.load.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=10 * USUAL, help="operations per second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--warm-up", type=float, help="warm-up minutes without measurement (a fifth, at least two)")
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    options = parser.parse_args()
    warm_up = 60 * (max(2.0, options.minutes / 5) if options.warm_up is None else options.warm_up)
    if warm_up >= 60 * options.minutes:
        parser.error(f"--minutes {options.minutes:g} is within the warm-up. Give a longer run or a shorter --warm-up.")
    ledger = Ledger(keeps=200_000, ttl=RETENTION_SECONDS)
    load = Load(seconds=60 * options.minutes, rate=options.rate, clients=CLIENTS, keeps=200_000)
    with (
        tempfile.TemporaryDirectory(prefix="glle-soak-") as folder,
        running(Path(folder), **SETTINGS, GLLE_WORKERS=str(options.workers)) as up,
    ):
        with take_samples(up) as samples:
            _fill_pools(up.url)
            started = time.time()
            run(load, [up.url], ledger=ledger)
        log = up.log.read_text()
    verdicts = [
        *process_verdicts(samples, warm_up),
        *server_verdicts(samples, warm_up),
        *latency_verdicts(ledger.attempts, started, warm_up),
    ]
    last = samples[-1].servers
    fields = {
        "minutes": options.minutes,
        "rate": options.rate,
        "requests": ledger.requests,
        "requests_per_second": ledger.requests / (60 * options.minutes),
        "answers": dict(sorted(ledger.counts.items())),
        "faults": ledger.faults,
        "errors": [str(error) for error in ledger.errors()],
        "servers": last,
        "settings": SETTINGS,
        "verdicts": [{**asdict(verdict), "change": verdict.change} for verdict in verdicts],
        "samples": [
            {"at": sample.at, **{n: vars(held) for n, held in sample.processes.items()}, "servers": sample.servers}
            for sample in samples
        ],
    }
    write_report(options.out / "soak.json", fields)
    (options.out / "up.log").write_text(log)
    lines = [align([HEAD, *(verdict.cells() for verdict in verdicts)])]
    lines.append(f"{ledger.requests} requests, {fields['requests_per_second']:.1f} a second; {last}")
    lines += [*ledger.faults[:20], *fields["errors"][:20]]
    (options.out / "soak.txt").write_text("\n".join(lines) + "\n")
    say(*lines)
    is_well = all(verdict.is_flat for verdict in verdicts) and not ledger.faults and not ledger.errors()
    return 0 if is_well else 1


def _fill_pools(url: str) -> None:
    """Send enough concurrent requests to make the service start all threads and connections before the measurement."""
    with httpx.Client(base_url=url, timeout=60, limits=httpx.Limits(max_connections=AT_ONCE)) as client:

        def ask(_: int) -> None:
            client.get("/readyz")
            client.get("/v1/jobs")

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(ask, range(10 * AT_ONCE)))


if __name__ == "__main__":
    sys.exit(main())
