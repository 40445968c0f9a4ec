"""`python -m qa.soak`: `glle up` under ten times its usual load, sampled and judged.

The usual load is ten users with one operation every ten seconds each, from the mix of `qa.load`: uploads, fits, draws,
summaries, embeddings, reads, cancels, deletions. Retention times are short and budgets small, so that records and
caches reach their steady state during the warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from qa.load.ledger import Ledger
from qa.load.running import Load, run
from qa.soak import verdict as judging
from qa.soak.sampling import sampled
from tests.system.conftest import running

USUAL = 1.0  # operations per second
CLIENTS = 10
AT_ONCE = 60  # more than the thread pool of the service
RETENTION_SECONDS = 60
SETTINGS = {
    "GLLE_HEARTBEAT": "5",
    "GLLE_LOG_LEVEL": "warning",
    "GLLE_JOB_TTL": str(RETENTION_SECONDS),
    "GLLE_CACHE_BYTES": str(6 * 2**20),
}


def main() -> int:
    """Run the soak; print the table, write samples and verdicts; return 1 unless every series is flat."""
    parser = argparse.ArgumentParser(prog="python -m qa.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=10 * USUAL, help="operations per second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--warm-up", type=float, help="warm-up minutes without measurement (a fifth, at least two)")
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    options = parser.parse_args()
    warm_up = 60 * (max(2.0, options.minutes / 5) if options.warm_up is None else options.warm_up)
    if warm_up >= 60 * options.minutes:
        parser.error(f"--minutes {options.minutes:g} is within the warm-up. Give a longer run or a shorter --warm-up.")
    options.out.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(keeps=200_000, ttl=RETENTION_SECONDS)
    load = Load(seconds=60 * options.minutes, rate=options.rate, clients=CLIENTS, keeps=200_000)
    with (
        tempfile.TemporaryDirectory(prefix="glle-soak-") as folder,
        running(Path(folder), **SETTINGS, GLLE_WORKERS=str(options.workers)) as up,
    ):
        with sampled(up) as samples:
            _fill_pools(up.url)
            started = time.time()
            run(load, [up.url], ledger=ledger)
        (options.out / "up.log").write_text(up.log.read_text())
    verdicts = [
        *judging.process_verdicts(samples, warm_up),
        *judging.server_verdicts(samples, warm_up),
        *judging.latency_verdicts(ledger.attempts, started, warm_up),
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
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        "samples": [
            {"at": sample.at, **{n: vars(held) for n, held in sample.processes.items()}, "servers": sample.servers}
            for sample in samples
        ],
    }
    (options.out / "soak.json").write_text(json.dumps(fields, indent=1))
    lines = [judging.HEAD, *(verdict.line() for verdict in verdicts)]
    lines.append(f"{ledger.requests} requests, {fields['requests_per_second']:.1f} a second; {last}")
    lines += [*ledger.faults[:20], *fields["errors"][:20]]
    (options.out / "soak.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))  # noqa: T201 # the command's output
    is_well = all(verdict.is_flat for verdict in verdicts) and not ledger.faults and not ledger.errors()
    return 0 if is_well else 1


def _fill_pools(url: str) -> None:
    """Send enough concurrent requests to start every thread and connection before the measurement."""
    with httpx.Client(base_url=url, timeout=60, limits=httpx.Limits(max_connections=AT_ONCE)) as client:

        def ask(_: int) -> None:
            client.get("/readyz")
            client.get("/v1/jobs")

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(ask, range(10 * AT_ONCE)))


if __name__ == "__main__":
    sys.exit(main())
