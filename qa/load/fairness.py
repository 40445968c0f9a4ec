"""`python -m qa.load.fairness`: a greedy tenant floods all that tenants share, and another tenant must not notice.

A `glle up` with API keys serves two tenants. The other tenant draws, fits, uploads and lists, first alone, then while
the greedy tenant floods each shared resource in turn, and then all together. The program checks that

- each operation of the other tenant takes at most a second and twice its time alone (99th percentile);
- nothing is refused but requests of the greedy tenant.

The exit code is 1 if a check failed. `--seconds 5 --only all` is a short form, which floods with less.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from qa.frame import say, write_report
from service.cli.data_folder import connect_stores
from tests.system.conftest import fit_posterior, running, synthetic
from worker.base.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from multiprocessing.managers import DictProxy

FREE_SECONDS, FACTOR = 1.0, 2.0  # an operation may take this long, and in addition this many times its time alone
MIN_TIMES = 8  # minimum number of repetitions of each operation
CSV = {"Content-Type": "text/csv"}
DRAWN_POINTS = 2_000  # points of the posterior whose draws take some 20 ms
FITTED_POINTS = 300  # points of a small fit
HEAVY_POINTS = 5_000  # points of the greedy tenant's posterior
SMALL_ROWS, LARGE_ROWS = 4_000, 100_000  # rows of a table that a process reads for milliseconds, or for seconds
ALL = "all"
SENT, CLOSED = 0, 1  # beside the statuses: requests that were sent, and connections that were closed
# Seconds after a refusal, as of a greedy client, which does not wait for Retry-After. What is flooded is what requests
# hold, not their number in a second, which a proxy limits.
PAUSES = {429: 2.0, 503: 2.0, 408: 20.0}
SLOW_SECONDS = 2.0  # pause between two bytes of a slow upload


@dataclass
class Tenant:
    """A tenant: the token of its API key, and the ids of its data set and posterior."""

    url: str
    token: str
    dataset: str = ""
    posterior: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the tenant's requests, which have the token."""
        return {"Authorization": f"Bearer {self.token}"}

    def prepare(self, drawn: int, fitted: int) -> None:
        """Create the tenant's posterior of `drawn` points, and the data set of `fitted` points."""
        with httpx.Client(base_url=self.url, headers=self.headers, timeout=120) as client:
            self.posterior = fit_posterior(client, synthetic(client, drawn, seed=1))
            self.dataset = synthetic(client, fitted, seed=2)


@dataclass
class Measured:
    """Seconds of each operation of the other tenant, and the number of each answer that is an error."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def quantile(self, name: str) -> float:
        """Return the 99th percentile of the seconds of an operation."""
        return float(np.quantile(self.seconds[name], 0.99))


class Other:
    """Performs the operations of the tenant that must not notice the greedy tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._client = httpx.Client(base_url=tenant.url, headers=tenant.headers, timeout=120)
        self._numbers = count()
        self._operations: dict[str, Callable[[int], httpx.Response]] = {
            "draw": lambda number: self._client.get(f"{tenant.posterior}/draws/{4 * number}?wait=60"),
            "fit": self._fit,
            "upload": lambda number: self._client.post("/v1/datasets", content=table(SMALL_ROWS, number), headers=CSV),
            "list": lambda _: self._client.get("/v1/datasets?limit=10"),
        }

    def measure(self, seconds: float) -> Measured:
        """Repeat all operations in turn for some seconds, at least `MIN_TIMES` times; return their durations."""
        measured, until, times = Measured(), time.monotonic() + seconds, 0
        while times < MIN_TIMES or time.monotonic() < until:
            times += 1
            for name, act in self._operations.items():
                number, started = next(self._numbers), time.perf_counter()
                answer = act(number)
                measured.seconds.setdefault(name, []).append(time.perf_counter() - started)
                if answer.status_code not in {httpx.codes.OK, httpx.codes.CREATED}:
                    measured.refused[f"{name}: {answer.status_code} {answer.text[:200]}"] += 1
        return measured

    def _fit(self, number: int) -> httpx.Response:
        body = {"dataset": self._tenant.dataset, "n_neighbors": 8, "reg": 1e-3 * (1 + number / 1000), "method": "em"}
        return self._client.post("/v1/posteriors?wait=60", json=body)


def table(rows: int, number: int) -> bytes:
    """Return a CSV table with some rows; tables with different numbers are different."""
    values = np.random.default_rng(number).normal(size=(rows, 3))
    return "\n".join([f"a{number},b,c", *(f"{x:.6f},{y:.6f},{z:.6f}" for x, y, z in values)]).encode()


class Flood:
    """Sends the requests of the greedy tenant, as many at the same time as possible.

    `answers` counts the answers by status. `scale` below 1 sends fewer at a time.
    """

    def __init__(self, tenant: Tenant, answers: Counter[int], scale: float) -> None:
        self._tenant = tenant
        self._answers = answers
        self._scale = scale
        self._numbers = count(int(time.time()) % 10**6 * 1000)
        self._large = table(LARGE_ROWS, 0)
        self._floods: dict[str, tuple[Callable[[httpx.AsyncClient], Awaitable[object]], int]] = {
            "draws": (self._draw, 300),
            "fits": (self._fit, 60),
            "jobs": (self._job, 100),
            "bodies": (self._upload, 12),
            "slow bodies": (self._drip, 1700),
            "waits": (self._wait, 900),
        }

    @property
    def names(self) -> list[str]:
        """Names of the resources that can be flooded."""
        return list(self._floods)

    async def run(self, names: list[str]) -> None:
        """Flood the resources with these names until the process is ended."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=self._tenant.url, headers=self._tenant.headers, timeout=120, limits=limits
        ) as client:
            await asyncio.gather(
                *(
                    self._repeat(act, client)
                    for act, times in (self._floods[name] for name in names)
                    for _ in range(max(4, int(self._scale * times)))
                )
            )

    async def _repeat(self, act: Callable[[httpx.AsyncClient], Awaitable[object]], client: httpx.AsyncClient) -> None:
        while True:
            self._answers[SENT] += 1
            with suppress(httpx.TransportError, OSError):
                answer = await act(client)
                status = answer.status_code if isinstance(answer, httpx.Response) else CLOSED
                self._answers[status] += 1
                await asyncio.sleep(PAUSES.get(int(status), 0.0))
            await asyncio.sleep(0)

    async def _draw(self, client: httpx.AsyncClient) -> httpx.Response:
        return await client.get(f"{self._tenant.posterior}/draws/{4 * next(self._numbers)}?wait=60")

    async def _fit(self, client: httpx.AsyncClient) -> httpx.Response:
        reg = 1e-3 * (1 + next(self._numbers) / 1e9)
        return await client.post("/v1/posteriors?wait=30", json={"dataset": self._tenant.dataset, "reg": reg})

    async def _job(self, client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(f"{self._tenant.posterior}/draws", json={"n_draws": 64, "seed": next(self._numbers)})

    async def _upload(self, client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/v1/datasets/preview", content=self._large, headers=CSV)

    async def _wait(self, client: httpx.AsyncClient) -> httpx.Response:
        job = await self._job(client)
        path = f"/v1/jobs/{job.json()['id']}?wait=60" if job.is_success else "/v1/jobs"
        return await client.get(path)

    async def _drip(self, client: httpx.AsyncClient) -> object:
        """Send an upload byte by byte; return the answer, or None if the connection is closed."""
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = (
            f"POST /v1/datasets HTTP/1.1\r\nHost: localhost\r\nAuthorization: {self._tenant.headers['Authorization']}"
        )
        writer.write(f"{head}\r\nContent-Type: text/csv\r\nContent-Length: 1000000\r\n\r\nx,y\n".encode())
        answer = asyncio.create_task(reader.read(64))
        try:
            while not answer.done():
                writer.write(b"1")
                await asyncio.wait([answer], timeout=SLOW_SECONDS)
            return httpx.Response(int(answer.result().split()[1])) if answer.result() else None
        finally:
            writer.close()


def _flood(tenant: Tenant, names: list[str], scale: float, counts: DictProxy[int, int]) -> None:
    """Flood resources; main function of a process, so that the load does not delay the measured requests."""

    async def run() -> None:
        answers: Counter[int] = Counter()
        flood = asyncio.create_task(Flood(tenant, answers, scale).run(names))
        while not flood.done():
            await asyncio.sleep(0.25)
            counts.update(answers)
        flood.result()

    asyncio.run(run())


@contextmanager
def flooding(tenant: Tenant, names: list[str], scale: float) -> Iterator[Counter[int]]:
    """Flood resources during the context, which begins with the first request; yield a count of answers by status.

    The count is filled at the end of the context.
    """
    context, answers = multiprocessing.get_context("spawn"), Counter[int]()
    with context.Manager() as manager:
        counts: Any = manager.dict()
        process = context.Process(target=_flood, args=(tenant, names, scale, counts))
        process.start()
        try:
            while not counts.get(SENT) and process.is_alive():
                time.sleep(0.1)
            yield answers
        finally:
            process.terminate()
            process.join()
            answers.update(dict(counts))


def main() -> int:
    """Run the floods, and print a row for each; return 1 if the other tenant has noticed one."""
    parser = argparse.ArgumentParser(prog="python -m qa.load.fairness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each flood")
    parser.add_argument(
        "--only", nargs="*", default=[], help="things to flood: of the following, or all; by default each, and then all"
    )
    parser.add_argument("--out", type=Path, default=Path("out/fairness"))
    options = parser.parse_args()
    scale = min(1.0, options.seconds / 20.0)
    with (
        tempfile.TemporaryDirectory(prefix="glle-fairness-") as folder,
        running(Path(folder), GLLE_AUTH="required", GLLE_HEARTBEAT="5") as up,
    ):
        with connect_stores(Settings(data_dir=str(Path(folder) / "data"))) as stores:
            greedy, other = (
                Tenant(up.url, stores.keys.create(name, ("write",), "", None)[1]) for name in ("greedy", "other")
            )
        greedy.prepare(HEAVY_POINTS, HEAVY_POINTS)
        other.prepare(DRAWN_POINTS, FITTED_POINTS)
        operations = Other(other)
        operations.measure(0.0)  # compiled code, connections
        alone = operations.measure(options.seconds / 2)
        rows, faults = [_row("alone", alone, Counter())], [str(refused) for refused in alone.refused]
        say(" | ".join(("flood", *alone.seconds)), " | ".join(rows[0]))
        names = Flood(greedy, Counter(), scale).names
        for flooded in [names if name == ALL else [name] for name in options.only or (*names, ALL)]:
            with flooding(greedy, flooded, scale) as answers:
                time.sleep(min(5.0, options.seconds / 2))  # until all are connected
                measured = operations.measure(options.seconds)
            name = ALL if flooded == names else flooded[0]
            rows.append(_row(name, measured, answers))
            say(" | ".join(rows[-1]))
            faults += [f"{name}: {refused} ({times} times)" for refused, times in measured.refused.items()]
            for operation in measured.seconds:
                allowed = FREE_SECONDS + FACTOR * alone.quantile(operation)
                if (seconds := measured.quantile(operation)) > allowed:
                    faults.append(f"{name}: a {operation} takes {seconds:.2f} s; {allowed:.2f} s are allowed")
    say(*faults)
    write_report(options.out / "fairness.json", {"rows": rows, "faults": faults})
    return int(bool(faults))


def _row(name: str, measured: Measured, answers: Counter[int]) -> tuple[str, ...]:
    names = {SENT: "sent", CLOSED: "closed"}
    statuses = ", ".join(f"{names.get(status, status)}: {times}" for status, times in sorted(answers.items()))
    seconds = (f"{measured.quantile(operation):.3f}" for operation in measured.seconds)
    return (name, *seconds, str(len(measured.seconds["draw"])), statuses)


if __name__ == "__main__":
    sys.exit(main())
