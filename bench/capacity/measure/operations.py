"""Costs of the service without the engine: each client operation over HTTP, metered in all processes."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from bench.capacity.measure import resting
from bench.capacity.measure.deployment import running
from bench.capacity.measure.engine import data_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.capacity.measure.deployment import Deployment

SETTINGS = (  # n, k, p, d
    (500, 10, 2, 3), (1_000, 20, 3, 8), (2_000, 8, 3, 64), (5_000, 10, 2, 3), (8_000, 12, 2, 8), (20_000, 10, 2, 3)
)  # fmt: skip
COUNTS = (1, 4, 16, 64, 256)
VALUES = 1_500_000  # limit of n p draws of a measured job
MEDIA = {"npy": "application/x-npy", "json": "application/json", "csv": "text/csv"}
POLLS = 100

Row = dict[str, Any]


@dataclass
class Measured:
    """Client of a deployment that records the costs of its operations.

    Attributes
    ----------
    rows : list of dict
        One for each operation and setting: difference of every meter per operation.

    """

    deployment: Deployment
    http: httpx.Client
    rows: list[Row] = field(default_factory=list)
    fresh: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def meter(self, operation: str, times: int, do: Callable[[int], object], **setting: float) -> None:
        """Run an operation several times and record its cost each time."""
        self.deployment.calm()
        before = self.deployment.reading()
        for number in range(times):
            do(number)
        self.deployment.calm()
        after = self.deployment.reading()
        differences = {what: (after[what] - before[what]) / times for what in after}
        self.rows.append({"operation": operation, "times": times, **setting, **differences})

    def post(self, path: str, **how: Any) -> dict[str, Any]:
        """Return the JSON of an answer."""
        body: dict[str, Any] = self.http.post(path, **how).raise_for_status().json()
        return body

    def ended(self, job: dict[str, Any]) -> dict[str, Any]:
        """Wait for a job and return it once it has succeeded."""
        while job["status"] in {"queued", "running"}:
            job = self.http.get(f"/v1/jobs/{job['id']}?wait=60").raise_for_status().json()
        if job["status"] != "succeeded":
            raise RuntimeError(job)
        return job

    def read(self, path: str, media: str) -> bytes:
        """Return a response body."""
        return self.http.get(path, headers={"Accept": MEDIA[media]}).raise_for_status().content


def measured(largest: int) -> dict[str, list[Row]]:
    """Return the costs of every operation in every setting on one worker, and of the idle deployment."""
    with (
        running(1) as deployment,
        httpx.Client(base_url=deployment.url, timeout=300, trust_env=False) as http,
    ):
        client = Measured(deployment, http)
        fitted_posterior(client, 200, 8, 2, 3, times=3)  # warm-up
        client.rows.clear()
        cached = []
        for n, k, p, d in SETTINGS:
            if n <= largest:
                posterior = _measure_all(client, n, k, p, d)
                cached.append({"k": k, **resting.draws(deployment, posterior.rpartition("/")[2], n, p)})
                print(f"operations: n = {n:,}", flush=True)
        client.rows.append(resting.idle(deployment))
        return {
            "operations": client.rows,
            "cached": cached,
            "keys": resting.keys(deployment),
            "processes": [resting.processes(deployment)],
        }


def _measure_all(measured: Measured, n: int, k: int, p: int, d: int) -> str:
    """Measure every operation on one shape of posterior; return the path of one."""
    posterior = fitted_posterior(measured, n, k, p, d, times=6 if n < 5_000 else 3)
    setting = {"n": n, "k": k, "p": p, "d": d}
    last = {}
    for count in COUNTS:
        if n * p * count <= VALUES:
            times = max(2, min(8, 64 // count)) if n < 5_000 else 2
            last = _jobs(measured, posterior, count, times, setting)
    # Draws of a new lane group, then the same under another URL: in the array cache, but not in the API's memory.
    start, path = 2**20, f"{posterior}/draws/{{}}?wait={{}}"

    def reading(media: str, first: int = 0, group: int = 0, again: int = 1) -> Callable[[int], object]:
        """Return a function that reads a draw by number: a new lane group, another URL, or the same URL each time."""
        return lambda number: measured.read(path.format(start + group * number, first + again * number), media)

    measured.meter("first", 8, reading("npy", group=4, again=0), **setting, draws=4, bytes=8 * n * p)
    for media in MEDIA:
        in_memory = len(measured.read(path.format(start, 0), media))
        measured.meter(f"cached {media}", 20, reading(media, first=1), **setting, draws=1, bytes=in_memory)
        measured.meter(f"kept {media}", POLLS, reading(media, again=0), **setting, bytes=in_memory)
    for media in ("npy", "json") if n <= 5_000 else ("npy",):
        result = partial(measured.read, f"/v1/jobs/{last['id']}/result", media)
        more = {"draws": last["progress"]["total"], "bytes": len(result())}
        measured.meter(f"result {media}", 3, _always(result), **setting, **more)
    for what, path in (
        ("poll", f"/v1/jobs/{last['id']}"),
        ("describe", posterior),
        ("list", "/v1/posteriors?limit=20"),
        ("ready", "/readyz"),
    ):
        measured.meter(what, POLLS, _always(partial(measured.read, path, "json")), **setting)
    return posterior


def fitted_posterior(measured: Measured, n: int, k: int, p: int, d: int, *, times: int) -> str:
    """Upload and fit several data sets; return the path of the last posterior."""
    setting = {"n": n, "k": k, "p": p, "d": d}
    seeds = [next(measured.fresh) for _ in range(times)]
    bodies = [_npy(data_of(n, d, seed)) for seed in seeds]
    cached_paths: list[str] = []

    def upload(number: int) -> None:
        headers = {"Content-Type": MEDIA["npy"]}
        cached_paths.append(measured.post("/v1/datasets", content=bodies[number], headers=headers)["id"])

    posteriors: list[str] = []

    def fit(number: int) -> None:
        body = {"dataset": cached_paths[number], "n_neighbors": k, "n_components": p}
        posteriors.append(measured.post("/v1/posteriors?wait=60", json=body)["id"])

    measured.meter("upload", times, upload, **setting, bytes=len(bodies[0]))
    measured.meter("fit", times, fit, **setting)
    return f"/v1/posteriors/{posteriors[-1]}"


def _jobs(measured: Measured, posterior: str, count: int, times: int, setting: dict[str, int]) -> dict[str, Any]:
    last: dict[str, Any] = {}

    def job(_: int) -> None:
        body = {"count": count, "seed": next(measured.fresh)}
        last.update(measured.ended(measured.post(f"{posterior}/draws?wait=60", json=body)))

    measured.meter("job", times, job, **setting, draws=count)
    return last


def _always(do: Callable[[], object]) -> Callable[[int], object]:
    """Return a function that ignores its number."""
    return lambda _: do()


def _npy(X: Any) -> bytes:
    with io.BytesIO() as file:
        np.save(file, X)
        return file.getvalue()
