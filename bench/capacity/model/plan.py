"""From a demand to a deployment: processes, bytes, utilization, and the first bottleneck."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.capacity.model.queueing_model import Cost, Shape, tasks

if TYPE_CHECKING:
    from bench.capacity.model.queueing_model import Model

BUSY = 0.7  # planned utilization of a process; above it, waiting times grow quickly
NETWORK = 1.25e9  # bytes per second of a 10 Gbit link
CLIENTS = 10_000  # default limit of a Redis server (maxclients)
API_CONNECTIONS = 44  # connections of an API process to each server: 40 threads, listeners, and one for a lock
HORSE_CONNECTIONS = 4  # connections of a busy worker and its work-horse to each server
JOB_SECONDS = 7 * 86400  # GLLE_JOB_TTL
SHARD_POINTS = 2**20  # bytes of a posterior's chunk in the cache


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Demand of clients on posteriors of one shape.

    Parameters
    ----------
    fits, draws, singles, reads, kept
        Rates per second: fits of new data sets, draws in jobs, first single draws, draws read from the cache, and
        draws in the memory of an API process.
    job
        Draws per job.
    posteriors, draws_kept
        Cached posteriors, and cached draws of each.

    """

    shape: Shape
    fits: float = 0.0
    draws: float = 0.0
    singles: float = 0.0
    reads: float = 0.0
    kept: float = 0.0
    job: int = 64
    posteriors: int = 0
    draws_kept: int = 0


@dataclass(frozen=True, kw_only=True)
class Station:
    """A resource that exists only once.

    Parameters
    ----------
    busy
        Utilization by the demand: 1 is full.
    what
        Description.

    """

    name: str
    busy: float
    what: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Deployment that serves a demand.

    Parameters
    ----------
    cost
        Cost of one second.
    workers, api
        Numbers of processes, each with utilization `BUSY`.
    cache_bytes, queue_bytes, disk_bytes
        Stored bytes: arrays; records; data sets, per second for the last.
    stations
        Resources that exist once, the fullest first.

    """

    cost: Cost
    workers: int
    api: int
    cache_bytes: float
    queue_bytes: float
    disk_bytes: float
    stations: tuple[Station, ...]

    @property
    def fits(self) -> bool:
        """Return whether every resource is used below `BUSY` of its capacity."""
        return self.stations[0].busy <= BUSY


def plan(model: Model, demand: Demand) -> Plan:
    """Return the plan for a demand: each cost by its law, times its rate; the closed form of the simulation."""
    shape, answer = demand.shape, model.answer_bytes(demand.shape)
    jobs = demand.draws / demand.job
    read = demand.singles + jobs * tasks(demand.job * model.engine("lane", shape))
    # In a stream of requests each uploads before it fits, and each job's result is read.
    parts = [
        reading(model, shape).times(read),  # by each task; the other laws were measured with the posterior in memory
        model.cost("upload", shape, bytes=8.0 * shape.n * shape.d).times(demand.fits),
        model.cost("fit", shape).times(demand.fits),
        model.cost("job", shape, draws=float(demand.job)).times(jobs),
        model.cost("result npy", shape, draws=float(demand.job), bytes=answer * demand.job).times(jobs),
        model.cost("first", shape, draws=4.0, bytes=answer).times(demand.singles),
        model.cost("cached npy", shape, bytes=answer).times(demand.reads),
        model.cost("kept npy", shape, bytes=answer).times(demand.kept),
    ]
    cost = Cost()
    for part in parts:
        cost = cost.plus(part)
    workers = max(1, math.ceil(cost.worker_cpu / BUSY))
    api = max(1, math.ceil(cost.api_cpu / BUSY))
    waiting = workers * model.sizes["idle_queue_commands"] * command_seconds(model)
    connections = api * API_CONNECTIONS + workers * HORSE_CONNECTIONS
    stations = [
        Station(name="queue server", busy=cost.queue_cpu + waiting, what="its one thread, seconds a second"),
        Station(name="cache server", busy=cost.cache_cpu, what="its one thread, seconds a second"),
        Station(
            name="cache network",
            busy=max(cost.cache_in, cost.cache_out) / NETWORK,
            what=f"bytes a second one way, of {NETWORK:,.0f}",
        ),
        Station(name="connections", busy=connections / CLIENTS, what=f"to each server, of {CLIENTS:,}"),
    ]
    return Plan(
        cost=cost,
        workers=workers,
        api=api,
        cache_bytes=demand.posteriors
        * (model.engine("posterior_cached", shape) + demand.draws_kept * model.engine("draw_cached", shape)),
        queue_bytes=demand.posteriors * record_bytes(model)
        + (demand.fits + jobs + demand.singles) * JOB_SECONDS * job_bytes(model),
        disk_bytes=demand.fits * 8.0 * shape.n * shape.d,
        stations=tuple(sorted(stations, key=lambda one: -one.busy)),
    )


def command_seconds(model: Model) -> float:
    """Return the queue server's processor seconds per command, as tasks send them."""
    first = model.cost("first", Shape())
    return first.queue_cpu / first.queue_commands


def record_bytes(model: Model) -> float:
    """Return the permanent bytes of a posterior in the queue server: record, list entry, data set."""
    return model.sizes["key glle:posterior:*"] + model.sizes["key glle:dataset:*:posteriors"] + 2 * 100


def job_bytes(model: Model) -> float:
    """Return the bytes of a job in the queue server until its record expires: record, claim, list entry."""
    return model.sizes["key glle:job:*"] + model.sizes["key glle:claim:*"] + 2 * 100


def reading(model: Model, shape: Shape) -> Cost:
    """Return the cost of loading a posterior into a task's memory: read from the cache, and analysed."""
    nbytes = model.engine("posterior_bytes", shape)
    pieces = math.ceil(nbytes / SHARD_POINTS)
    values = {"draws": float(pieces), "drawn": nbytes}
    return Cost(
        worker_cpu=model.engine("analysis", shape),
        cache_cpu=model.laws["result npy cache_cpu"].at(values),
        cache_out=nbytes,
        cache_commands=float(pieces),
    )
