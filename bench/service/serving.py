"""Overhead of HTTP, queue and cache over the engine, measured on a running service."""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from bench.data import data_of, posterior_of
from bench.report.table import Row
from bench.report.timing import in_turn, seconds
from bench.service.bare import running_bare
from bench.service.load import DIFFERENT, load
from demo.service import running_service
from glle import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

N = 5_000
JOBS = [(5_000, 7, 1.15), (20_000, 5, 1.05)]
DRAWS = 64
CLIENTS = 8
LOAD_SECONDS = 4.0
LOAD_ROUNDS = 5
NPY = {"Accept": "application/x-npy"}


def rows() -> Iterator[Row]:
    """Measure a job, a cached draw, a first draw and a small fit over HTTP; one worker."""
    with running_service(1) as url:
        client = Client(url, progress=False)
        try:
            with httpx.Client(base_url=url + "/v1", timeout=600, trust_env=False) as http:
                fitted = {n: client.fit(client.synthetic("swiss_roll", n)).id for n, *_ in JOBS}
                for n, repeats, goal in JOBS:
                    yield _job(http, fitted[n], n, repeats, goal)
                yield from _cached(http, url, fitted[N])
                yield _first(http, fitted[N])
                yield _small_fit(client, http)
        finally:
            client.close()


def _job(http: httpx.Client, posterior: str, n: int, repeats: int, goal: float) -> Row:
    """Compare 64 uncached draws over HTTP, from the request to the array, with the same draws by the engine alone."""
    own = posterior_of("swiss_roll", n)

    def ask(number: int) -> None:
        body = {"count": DRAWS, "seed": 1 + number}
        job = http.post(f"/posteriors/{posterior}/draws?wait=60", json=body).raise_for_status().json()
        while job["status"] in {"queued", "running"}:
            job = http.get(f"/jobs/{job['id']}?wait=60").raise_for_status().json()
        got = np.load(io.BytesIO(http.get(f"/jobs/{job['id']}/result", headers=NPY).raise_for_status().content))
        assert got.shape == (DRAWS, n, 2), got.shape

    def alone(number: int) -> None:
        made = np.stack([draw.embedding for draw in own.draws(DRAWS, seed=1 + number)])
        assert made.shape == (DRAWS, n, 2)

    alone(repeats)
    pair = in_turn(ask, alone, repeats)
    detail = {"HTTP s": pair.our_median, "engine s": pair.their_median}
    work = f"a job of {DRAWS} draws over HTTP, npy, n = {n:,}"
    return Row(work, "the engine alone", 1 / pair.ratio, "x", goal, at_least=False, detail=detail)


def _cached(http: httpx.Client, url: str, posterior: str) -> Iterator[Row]:
    path = f"/posteriors/{posterior}/draws/{{}}"
    for index in range(DIFFERENT):
        body = http.get(path.format(index), headers=NPY).raise_for_status().content
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "draw.npy"
        file.write_bytes(body)
        with running_bare(file) as bare:
            ours: list[dict[str, float]] = []
            theirs: list[dict[str, float]] = []
            for number in range(LOAD_ROUNDS + 1):
                result = load(f"{url}/v1{path}", CLIENTS, LOAD_SECONDS), load(bare, CLIENTS, LOAD_SECONDS)
                assert result[0]["bytes"] == result[1]["bytes"] == len(body)
                if number:  # warm-up
                    ours.append(result[0])
                    theirs.append(result[1])
    ratio = statistics.median(a["rate"] / b["rate"] for a, b in zip(ours, theirs, strict=True))
    detail = {
        "ours, requests/s": statistics.median(result["rate"] for result in ours),
        "theirs, requests/s": statistics.median(result["rate"] for result in theirs),
        "ours p50 ms": statistics.median(result["p50"] for result in ours) * 1e3,
        "theirs p99 ms": statistics.median(result["p99"] for result in theirs) * 1e3,
    }
    work = f"a cached draw of {DIFFERENT} by GET, npy, n = {N:,}, {CLIENTS} clients"
    yield Row(f"{work}: requests/s", "a bare Starlette route", ratio, "x", 0.7, detail=detail)
    p99 = statistics.median(result["p99"] for result in ours) * 1e3
    yield Row(f"{work}: p99", "-", p99, "ms", 15.0, at_least=False)


def _first(http: httpx.Client, posterior: str) -> Row:
    """Single draws of uncached lane groups, then cached draws of the same groups."""
    times: dict[str, list[float]] = {"first": [], "neighbour": []}
    for number in range(-3, 21):
        for what, index in (("first", 5_000 + 64 * (number + 3)), ("neighbour", 5_001 + 64 * (number + 3))):
            path = f"/posteriors/{posterior}/draws/{index}"
            took = seconds(partial(_get, http, path))
            if number >= 0:
                times[what].append(took)
    detail = {"its neighbour ms": statistics.median(times["neighbour"]) * 1e3, "slowest ms": max(times["first"]) * 1e3}
    figure = statistics.median(times["first"]) * 1e3
    return Row(f"a first single draw by GET, n = {N:,}", "-", figure, "ms", 60.0, at_least=False, detail=detail)


def _get(http: httpx.Client, path: str) -> None:
    http.get(path, headers=NPY).raise_for_status()


def _small_fit(client: Client, http: httpx.Client) -> Row:
    times = []
    for seed in range(-3, 15):
        dataset = client.dataset(data_of("swiss_roll", 500, seed=100 + seed)).id
        started = time.perf_counter()
        body: dict[str, Any] = http.post("/posteriors?wait=60", json={"dataset": dataset}).raise_for_status().json()
        took = time.perf_counter() - started
        assert "eigenvalues" in body, body
        if seed >= 0:
            times.append(took)
    detail = {"slowest ms": max(times) * 1e3}
    figure = statistics.median(times) * 1e3
    work = "a small fit, n = 500, from POST to succeeded"
    return Row(work, "-", figure, "ms", 150.0, at_least=False, detail=detail)
