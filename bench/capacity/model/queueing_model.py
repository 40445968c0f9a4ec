"""Cost model of all client operations: laws by operation and meter, read from the stored measurements."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from bench.capacity.model.cost_law import Law

MEASURED = Path(__file__).with_name("measured.json")
STAGES = ("neighbors", "weights", "embedding", "posterior", "diagnostics")
METERS = (
    "worker_cpu", "api_cpu", "queue_cpu", "cache_cpu", "queue_commands", "cache_commands",
    "queue_in", "queue_out", "queue_aof", "cache_in", "cache_out",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A posterior: n points with d features, k neighbours of each, p dimensions."""

    n: int = 5_000
    d: int = 3
    k: int = 10
    p: int = 2


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of one operation.

    Parameters
    ----------
    worker_cpu, api_cpu, queue_cpu, cache_cpu
        Processor seconds of a worker (the engine's included), an API process, the queue's server, the cache's.
    queue_commands, cache_commands
        Sent to the servers.
    queue_in, queue_out, cache_in, cache_out, queue_aof
        Bytes into and out of a server, and added to the queue's log.

    """

    worker_cpu: float = 0.0
    api_cpu: float = 0.0
    queue_cpu: float = 0.0
    cache_cpu: float = 0.0
    queue_commands: float = 0.0
    cache_commands: float = 0.0
    queue_in: float = 0.0
    queue_out: float = 0.0
    queue_aof: float = 0.0
    cache_in: float = 0.0
    cache_out: float = 0.0

    def times(self, rate: float) -> Cost:
        """Return the cost of this many."""
        return Cost(**{name: rate * value for name, value in asdict(self).items()})

    def plus(self, other: Cost) -> Cost:
        """Return the sum of two costs."""
        more = asdict(other)
        return Cost(**{name: value + more[name] for name, value in asdict(self).items()})


@dataclass(frozen=True)
class Model:
    """The fitted laws.

    Parameters
    ----------
    laws
        Engine laws by stage (``"lane"``: a draw of many), service laws by operation and meter
        (``"job queue_cpu"``).
    sizes
        Constants: bytes of each kind of record, and costs of a process.
    machine
        Machine of the measurements.

    """

    laws: dict[str, Law]
    sizes: dict[str, float]
    machine: dict[str, Any]

    @classmethod
    def of(cls, result: dict[str, Any]) -> Self:
        """Return the model of a JSON document."""
        return cls({name: Law(**law) for name, law in result["laws"].items()}, result["sizes"], result["machine"])

    @classmethod
    @cache
    def read(cls) -> Self:
        """Return the stored model of this version."""
        return cls.of(json.loads(MEASURED.read_text(encoding="utf-8")))

    def engine(self, what: str, shape: Shape) -> float:
        """Return a cost of the engine alone."""
        return self.laws[what].at(asdict(shape))

    def fit_seconds(self, shape: Shape) -> float:
        """Return the processor seconds of a fit by the engine alone."""
        return sum(self.engine(f"fit_{stage}", shape) for stage in STAGES)

    def cost(self, operation: str, shape: Shape, **more: float) -> Cost:
        """Return the cost of an operation.

        Parameters
        ----------
        operation
            upload, fit, job (of `draws` draws), first (a draw that is not cached), ``cached``, ``kept`` and ``result``
            with npy, json or csv, poll, describe, list, ready.
        more
            `draws`; `tasks`, if they differ from those of a single worker; `bytes` of the answer or the body.

        """
        draws = more.get("draws", 1.0)
        engine = self.fit_seconds(shape) if operation == "fit" else draws * self.engine("lane", shape)
        values = {
            **asdict(shape),
            "draws": draws,
            "drawn": 8 * shape.n * shape.p * draws,
            "engine": engine,
            "tasks": tasks(engine),
            "posterior": self.engine("posterior_bytes", shape),
            "bytes": 0.0,
            **more,
        }
        return Cost(**{meter: self.laws[f"{operation} {meter}"].at(values) for meter in METERS})

    def answer_bytes(self, shape: Shape, media: str = "npy") -> float:
        """Return the bytes of one draw in an answer."""
        return self.laws[f"bytes {media}"].at(asdict(shape))


def tasks(engine_seconds: float, shard_seconds: float = 2.0) -> float:
    """Return the number of tasks of a draws job on an idle worker, which continues a task while time remains."""
    return float(max(1, math.ceil(engine_seconds / shard_seconds)))
