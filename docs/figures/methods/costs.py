"""Measure the seconds and bytes of every method, and fit the coefficients of `glle_engine/methods/costs.json`."""

from __future__ import annotations

import json
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial.distance import cdist

from docs.figures.methods import rows
from glle_engine import manifolds
from glle_engine.base.errors import GlleError
from glle_engine.methods import METHODS, costs
from qa.frame import memory, reset_peak_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from glle_engine.methods import Method, MethodSpec

UNITS = ("seconds", "bytes")
SIZES = (60, 150, 500, 1500, 4000)
FEATURES = (3, 12, 60, 500)
SECONDS = 10.0  # expected time above which a request is not measured
LEAST_BYTES = 8e6  # smaller arrays fit into free pages of the process
LATENT = 6  # dimensions of the data of many features
PRIOR = 0.2  # weight of the previous value of a coefficient, relative to a measurement
# Options that choose another row of the table, or other variables of its terms.
OPTIONS: dict[str, list[dict[str, object]]] = {
    "mds": [{"dissimilarity": "precomputed"}],
    "isomap": [{"n_landmarks": 100}],
    "diffusion-maps": [{"n_neighbors": 20}],
    "drill": [{"n_neighbors": "all"}],
    "t-sne": [{"negative_gradient_method": "fft"}, {"perplexity": 10}],
    "glle": [{"noise": "tangent"}, {"variant": "published"}],
}


class Measurement(NamedTuple):
    """Measured and expected cost of one request."""

    method: Method[Any]
    n: int
    d: int
    spec: MethodSpec
    seconds: float
    bytes: float


def points(n: int, d: int) -> NDArray[np.float64]:
    """Return a sheet of three features, or a noisy cube of six dimensions in more."""
    if d == FEATURES[0]:
        return manifolds.make("s_curve", n, seed=0).X
    rng = np.random.default_rng(0)
    return rng.uniform(size=(n, LATENT)) @ rng.standard_normal((LATENT, d)) + 0.05 * rng.standard_normal((n, d))


def requests(method: Method[Any]) -> Iterator[tuple[int, int, MethodSpec]]:
    """Yield the sizes and parameters to measure."""
    variants = [{}, *OPTIONS.get(method.name, [])]
    if "n_neighbors" in method.spec.parameters():
        variants.append({"n_neighbors": 16})
    for options in variants:
        spec = method.spec(**options)
        is_square = options.get("dissimilarity") == "precomputed"
        for n in SIZES:
            for d in (n,) if is_square else FEATURES:
                yield n, d, spec


def peak_bytes(work: Callable[[], object]) -> float:
    """Return the rise of the resident memory of this process during some work (Linux)."""
    reset_peak_memory()
    before = memory("VmRSS")
    work()
    return float(memory("VmHWM") - before)


def embed(name: str, n: int, d: int, parameters: dict[str, Any]) -> tuple[float, float] | str:
    """Return the least processor time of up to three runs and the memory of the first, or the refusal."""
    method = METHODS[name]
    X = points(n, d) if d != n else cdist(points(n, FEATURES[0]), points(n, FEATURES[0]))
    labels = (np.arange(n) * 3 // n) if method.labels else None
    seconds: list[float] = []

    def run() -> None:
        since = time.process_time()
        method.embed(X, method.spec(**parameters), labels=labels)
        seconds.append(time.process_time() - since)

    try:
        peak = peak_bytes(run)
        while len(seconds) < 3 and sum(seconds) < 0.3:
            run()
    except GlleError as error:
        return error.message
    return min(seconds), peak


def measure(method: Method[Any]) -> list[Measurement]:
    """Measure the requests with an expected time of at most `SECONDS`, each in a fork with an unused heap."""
    rows.warm(method)
    results = []
    for n, d, spec in requests(method):
        try:
            method.require_possible(n, d, spec, labels=method.labels)
        except GlleError as error:
            print(f"{method.name} {n} {d}: {error.message}", file=sys.stderr)
            continue
        if (expected := method.cost(n, d, spec)).seconds > SECONDS:
            continue
        with get_context("fork").Pool(1) as pool:
            answer = pool.apply(embed, (method.name, n, d, spec.to_dict()))
        if isinstance(answer, str):
            print(f"{method.name} {n} {d}: {answer}", file=sys.stderr)
            continue
        results.append(Measurement(method, n, d, spec, *answer))
        print(f"{method.name} {n} {d}: {answer[0]:.3g} s, {answer[1]:.3g} bytes, expected {expected}", flush=True)
    return results


def features(result: Measurement, row: str, unit: str) -> list[float]:
    """Return the terms of a row for a request: its cost with one coefficient at 1 and all others at 0."""
    table = costs.table()
    saved = {name: dict(cells) for name, cells in table.items()}
    values = []
    try:
        for cells in table.values():
            cells.update(seconds={}, bytes={})
        for term in saved[row][unit]:
            table[row][unit] = {term: 1.0}
            values.append(float(getattr(result.method.cost(result.n, result.d, result.spec), unit)))
    finally:
        table.update(saved)
    return values


def fit_coefficients(row: str, unit: str, results: list[Measurement]) -> dict[str, float]:
    """Return the coefficients of least error of the logarithm; undetermined terms keep their previous values."""
    before = costs.table()[row][unit]
    previous = np.array(list(before.values()))
    lines, values = [], []
    for result in results:
        value, terms = float(getattr(result, unit)), features(result, row, unit)
        if any(terms) and (unit == "seconds" or value > LEAST_BYTES):
            lines.append(np.array(terms) * previous)
            values.append(value * (costs.MARGIN if unit == "seconds" else 1.0))
    if not lines:
        return before
    matrix, target = np.array(lines), np.array(values)

    def errors(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([np.log(matrix @ np.exp(logarithms) / target), PRIOR * logarithms])

    shares = np.exp(least_squares(errors, np.zeros(len(previous)), loss="soft_l1").x)
    ratio = matrix @ shares / target
    worst = float(np.exp(np.abs(np.log(ratio)).max()))
    print(f"{row}, {unit}: {len(target)} requests, expected / measured {np.median(ratio):.2f}, worst by {worst:.2f}")
    return {term: float(f"{value:.3g}") for term, value in zip(before, shares * previous, strict=True)}


def update(names: list[str]) -> None:
    """Measure methods on this machine, and write their rows."""
    document = json.loads(costs.TABLE.read_text(encoding="utf-8"))
    for name in names:
        results = measure(METHODS[name])
        for row in document["rows"]:
            if row.split(", ")[0] == name:
                document["rows"][row] = {unit: fit_coefficients(row, unit, results) for unit in UNITS}
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("model name\t: ")[1].splitlines()[0]
    document["machine"] = f"{cpu}, processor time of one thread"
    write(document)


def write(document: dict[str, Any]) -> None:
    """Write the table, one line for each row and unit."""
    text = json.dumps(document, indent=1)
    for cells in document["rows"].values():
        for terms in cells.values():
            text = text.replace(json.dumps(terms, indent=1).replace("\n", "\n   "), json.dumps(terms))
    costs.TABLE.write_text(text + "\n", encoding="utf-8")
