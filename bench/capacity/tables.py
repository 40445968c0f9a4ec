"""Tables of docs/how-to/scaling.md, from the stored results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.capacity.model.plan import Demand, job_bytes, plan, record_bytes
from bench.capacity.model.queueing_model import MEASURED, Model, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.capacity.model.queueing_model import Cost

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "scaling.md"
SHAPES = (Shape(n=500), Shape(n=5_000), Shape(n=20_000), Shape(n=50_000, k=12))
ENGINE = {
    "fit_neighbors": "neighbours",
    "fit_weights": "weights",
    "fit_embedding": "embedding",
    "fit_posterior": "posterior",
    "fit_diagnostics": "diagnostics",
    "analysis": "a posterior's pattern, once a worker",
    "lane": "a draw of several",
    "single": "a draw alone",
}
OPERATIONS = {
    "upload": "upload a data set",
    "fit": "fit",
    "job": "a job of 64 draws",
    "result npy": "its result as npy",
    "result json": "its result as JSON",
    "first": "a first single draw",
    "cached npy": "a draw from the cache, npy",
    "cached json": "the same, JSON",
    "kept npy": "a draw in memory, npy",
    "poll": "GET a job",
    "list": "a page of posteriors",
    "ready": "GET /readyz, one worker",
}
BAD = 2.0  # predicted / measured above which a law is marked as an order of magnitude


def read() -> tuple[Model, dict[str, Any]]:
    """Return the stored model and the other results."""
    return Model.of(json.loads(MEASURED.read_text("utf-8"))), json.loads(RESULTS.read_text("utf-8"))


def tables() -> dict[str, str]:
    """Return every table by its marker in the page."""
    model, results = read()
    return {
        "machine": f"`{json.dumps(model.machine)}`",
        "engine": engine(model),
        "operations": operations(model),
        "errors": errors(model),
        "sizes": sizes(model),
        "first": full_first(model),
        "limits": limits(results["limits"]),
        "validation": validation(results["validation"]),
        "simulation": simulation(results["simulation"]),
    }


def engine(model: Model) -> str:
    """Return the engine's laws, with their errors."""
    rows = []
    for name, label in ENGINE.items():
        law = model.laws[name]
        formula = " + ".join(f"{1e9 * value:.3g} {term}" for term, value in law.terms.items()).replace(" 1 ", " ")
        rows.append([label, formula, law.settings, f"{law.median:.2f}", _worst(law.worst)])
    return _table(["stage", "nanoseconds of a processor", "settings", "median", "worst"], rows)


def operations(model: Model) -> str:
    """Return the cost of each operation at each station, at 5,000 points."""
    shape = Shape(n=5_000)
    rows = []
    for name, label in OPERATIONS.items():
        cost = _cost(model, name, shape)
        cells = [cost.worker_cpu, cost.api_cpu, cost.queue_cpu, cost.cache_cpu]
        rows.append(
            [
                label,
                *(_number(1e3 * cell) for cell in cells),
                _number(cost.queue_commands),
                _number(cost.cache_commands),
                _number((cost.cache_in + cost.cache_out) / 1e3),
            ]
        )
    head = ["", "worker ms", "API ms", "queue ms", "cache ms", "queue commands", "cache commands", "cache kB"]
    return _table(head, rows)


def errors(model: Model) -> str:
    """Return the errors of the service's laws on the settings left out of their fits."""
    rows = []
    for name, label in OPERATIONS.items():
        cells = []
        for station in ("worker", "api", "queue", "cache"):
            law = model.laws[f"{name} {station}_cpu"]
            cells.append(f"{law.median:.2f}, {_worst(law.worst)}" if law.terms else "-")
        rows.append([label, *cells])
    return _table(["median and worst of", "worker", "API", "queue", "cache"], rows)


def sizes(model: Model) -> str:
    """Return bytes by shape."""
    rows: list[list[Any]] = []
    memory = model.laws["fit_bytes"]
    asked: dict[str, Callable[[Shape], float]] = {
        "a posterior in the cache, MB": lambda shape: model.engine("posterior_cached", shape) / 1e6,
        "a draw in the cache, kB": lambda shape: model.engine("draw_cached", shape) / 1e3,
        f"peak of a fit, MB (median {memory.median:.2f}, worst {_worst(memory.worst)})": lambda shape: (
            model.engine("fit_bytes", shape) / 1e6
        ),
        "a fit, worker's seconds": lambda shape: model.cost("fit", shape).worker_cpu,
        "a draw of a job of 64, worker's ms": lambda shape: 1e3 * model.cost("job", shape, draws=64).worker_cpu / 64,
    }
    for label, ask in asked.items():
        rows.append([label, *(_number(ask(shape)) for shape in SHAPES)])
    rows.append(["a posterior's records in the queue's server, bytes", *[f"{record_bytes(model):,.0f}"] * len(SHAPES)])
    rows.append(["a job's, until GLLE_JOB_TTL, bytes", *[f"{job_bytes(model):,.0f}"] * len(SHAPES)])
    return _table(["", *(f"n = {shape.n:,}, k = {shape.k}" for shape in SHAPES)], rows)


def full_first(model: Model) -> str:
    """Return, for pure demands of each kind, the first full station and the number of workers then."""
    rows = []
    for shape in SHAPES:
        for result, demand in (
            ("fits", Demand(shape=shape, fits=1)),
            ("jobs of 64 draws", Demand(shape=shape, draws=64)),
            ("first single draws", Demand(shape=shape, singles=1)),
            ("draws from the cache", Demand(shape=shape, reads=1)),
        ):
            one = next(one for one in plan(model, demand).stations if one.name != "connections")
            cost, rate = plan(model, demand).cost, 1 / one.busy
            workers, api = cost.worker_cpu * rate, cost.api_cpu * rate
            rows.append([f"{shape.n:,}", result, _number(rate), _number(workers), _number(api), one.name])
    return _table(["n", "what", "most a second", "busy workers then", "busy API processes then", "full"], rows)


def limits(rows: list[dict[str, Any]]) -> str:
    """Return the costs with few and many records."""
    found = [
        [f"{row['count']:,} {row['of']}", row["what"], *(_number(row[name]) for name in ("client_ms", "server_ms"))]
        for row in rows
    ]
    commands = [_number(row["commands"]) if row["commands"] >= 1 else "-" for row in rows]
    lines = [[*line, result] for line, result in zip(found, commands, strict=True)]
    return _table(["of", "question", "process ms", "server ms", "commands"], lines)


def validation(rows: list[dict[str, Any]]) -> str:
    """Return the service beside the simulation."""
    found = []
    for row in rows:
        real, simulated = row["real"], row["simulated"]
        found.append([row["workers"], row["station"], f"{real:.3f}", f"{simulated:.3f}", f"{simulated / real:.2f}"])
    return _table(["workers", "station", "service, s", "simulated, s", "ratio"], found)


def simulation(rows: list[dict[str, Any]]) -> str:
    """Return the simulated runs; utilizations in brackets are those of the closed form."""
    found = []
    for row in rows:
        busy = [
            f"{row['busy'][name]:.0%} ({row['expected'][name]:.0%})" for name in ("workers", "api", "queue", "cache")
        ]
        waits = [_number(row[name]) if row[name] is not None else "-" for name in ("p50", "p95", "p99")]
        who = [row["mix"], f"{row['workers']:,}", f"{row['api']:,}", _number(row["asked"]), _number(row["done"])]
        found.append([*who, *waits, *busy, _number(row["refits"])])
    head = ["mix", "workers", "API", "asked a s", "done a s", "p50 s", "p95 s", "p99 s"]
    return _table([*head, "workers busy", "API busy", "queue busy", "cache busy", "refits a s"], found)


def _cost(model: Model, operation: str, shape: Shape) -> Cost:
    answer = {media: model.answer_bytes(shape, media) for media in ("npy", "json")}
    bytes_of = {"upload": 8.0 * shape.n * shape.d, "result npy": 64 * answer["npy"], "result json": 64 * answer["json"]}
    nbytes = bytes_of.get(operation, answer["json" if operation.endswith("json") else "npy"])
    draws = {"job": 64.0, "result npy": 64.0, "result json": 64.0, "first": 4.0}.get(operation, 1.0)
    return model.cost(operation, shape, draws=draws, bytes=nbytes)


def _worst(ratio: float) -> str:
    return f"**{ratio:.2f}**" if ratio > BAD else f"{ratio:.2f}"


def _number(value: float) -> str:
    return "-" if not value else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
