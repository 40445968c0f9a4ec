"""The simulation beside the real service in a setting that no law was fitted to: processor seconds of every station."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from bench.capacity.measure.deployment import running
from bench.capacity.measure.operations import Measured, fitted_posterior
from bench.capacity.model.plan import Demand
from bench.capacity.model.queueing_model import Shape
from bench.capacity.simulation import Simulation
from bench.capacity.stations import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.capacity.model.queueing_model import Model

SHAPE = Shape(n=3_000, k=10, p=2, d=3)
SINGLES, JOBS, READS = 40, 6, 60
DRAWS = 64
CLIENTS = 4
SECONDS = 60.0  # seconds in which the simulated requests arrive at random
STATIONS = ("worker", "api", "queue", "cache")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Processor seconds that a station spent on the same requests, in the service and simulated."""

    workers: int
    station: str
    real: float
    simulated: float


def compared(model: Model) -> Iterator[Comparison]:
    """Serve the same requests in both, with one worker and with two."""
    for workers in (1, 2):
        real, simulated = _real(workers), _simulated(model, workers)
        for station in STATIONS:
            yield Comparison(workers=workers, station=station, real=real[station], simulated=simulated[station])


def _real(workers: int) -> dict[str, float]:
    with running(workers) as deployment, httpx.Client(base_url=deployment.url, timeout=300, trust_env=False) as http:
        client = Measured(deployment, http)
        posterior = fitted_posterior(client, SHAPE.n, SHAPE.k, SHAPE.p, SHAPE.d, times=1)
        client.read(f"{posterior}/draws/0", "npy")
        numbers = itertools.count(1)

        def ask(kind: str) -> None:
            number = next(numbers)
            if kind == "single":
                client.read(f"{posterior}/draws/{4 * number}?seed=1", "npy")
            elif kind == "read":
                client.read(f"{posterior}/draws/0?wait={number}", "npy")
            else:
                job = client.ended(client.post(f"{posterior}/draws?wait=60", json={"count": DRAWS, "seed": 1 + number}))
                client.read(f"/v1/jobs/{job['id']}/result", "npy")

        kinds = ["single"] * SINGLES + ["job"] * JOBS + ["read"] * READS
        mixed = [kinds[i * 37 % len(kinds)] for i in range(len(kinds))]  # coprime to their number
        deployment.calm()
        before = deployment.reading()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(ask, mixed))
        deployment.calm()
        after = deployment.reading()
        return {station: after[f"{station}_cpu"] - before[f"{station}_cpu"] for station in STATIONS}


def _simulated(model: Model, workers: int) -> dict[str, float]:
    demand = Demand(
        shape=SHAPE,
        singles=SINGLES / SECONDS,
        draws=JOBS * DRAWS / SECONDS,
        reads=READS / SECONDS,
        job=DRAWS,
        posteriors=1,
    )
    setting = Setting(demand=demand, workers=workers, api=1, cache_bytes=1e10, seconds=20 * SECONDS)
    spent = Simulation(model, setting).run().spent  # twenty times as many, to average the randomness
    return {station: spent["workers" if station == "worker" else station] / 20 for station in STATIONS}
