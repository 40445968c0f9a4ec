"""The two experiments of Lawrence 2012, section 4: the likelihood of every method, and of DRILL over its penalty."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from docs.figures.methods.sets import REAL
from glle_engine import fit
from glle_engine.base.errors import GlleError
from glle_engine.methods import METHODS
from glle_engine.metrics.gplvm import fit_likelihood

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NEIGHBORS = (6, 7)
FAMILIES = ("spectral", "maximum entropy")
DRAWS = 8
# The range of the paper, without its fit of no penalty, which has no maximum for these data.
PENALTIES = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
CANDIDATES: tuple[int | str, ...] = (20, "all")
# In figure 7 the paper's DRILL has the k neighbors of the others and no penalty; this one is almost none.
SLIGHT = 1e-3
# Options that change the order of the methods.
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "lle, reg 0.1": ("lle", {"reg": 0.1}),
    "lle, reg 1e-06": ("lle", {"reg": 1e-6}),
    "alle, reg 1e-06": ("alle", {"reg": 1e-6}),
    "alle, ordering random": ("alle", {"ordering": "random"}),
    "laplacian-eigenmaps, weights simple": ("laplacian-eigenmaps", {"weights": "simple"}),
}


@dataclass(frozen=True)
class Likely:
    """GP-LVM log likelihood of a method with some option on a real set, or None with the reason of a refusal."""

    data: str
    method: str
    option: str
    value: float | None
    refused: str = ""
    seconds: float = 0.0


def compare_methods(name: str, data: Path) -> list[Likely]:
    """Return the rows of figure 7: spectral and maximum entropy methods and draws of GLLE, with 6 and 7 neighbors."""
    X = np.load(data / f"{name}.npy", allow_pickle=False)
    rows = []
    for k in NEIGHBORS:
        for method in METHODS.values():
            if method.family not in FAMILIES:
                continue
            options: dict[str, object] = {"n_neighbors": k} if "n_neighbors" in method.spec.parameters() else {}
            if method.name == "drill":
                options["l1"] = SLIGHT * float(X.var(axis=0).mean())
            rows.append(likelihood(name, X, method.name, str(k), options))
        for variant, (method_name, options) in VARIANTS.items():
            row = likelihood(name, X, method_name, str(k), {"n_neighbors": k, **options})
            rows.append(replace(row, method=variant))
        rows += glle(name, X, k)
    print(*(f"{row.method} {row.option}: {row.value}" for row in rows), sep="\n", flush=True)
    return rows


def likelihood(name: str, X: NDArray[np.float64], method: str, option: str, options: dict[str, Any]) -> Likely:
    """Return the row of one embedding."""
    since = time.perf_counter()
    try:
        Y = METHODS[method].embed(X, METHODS[method].spec(**options)).Y
        value = fit_likelihood(X, Y).log_likelihood
    except GlleError as error:
        return Likely(name, method, option, None, str(error))
    return Likely(name, method, option, value, seconds=time.perf_counter() - since)


def glle(name: str, X: NDArray[np.float64], k: int) -> list[Likely]:
    """Return the likelihoods of GLLE's draws; its mean is LLE."""
    try:
        posterior = fit(X, n_neighbors=k, disconnected="error")
    except GlleError as error:
        return [Likely(name, "glle", str(k), None, str(error))]
    return [
        Likely(name, "glle", str(k), fit_likelihood(X, posterior.draw(i).embedding).log_likelihood)
        for i in range(DRAWS)
    ]


def compare_penalties(name: str, data: Path) -> list[Likely]:
    """Return the rows of figures 8 and 9: DRILL over the L1 parameter, with 20 neighbors and with all points."""
    X = np.load(data / f"{name}.npy", allow_pickle=False)
    rows = []
    for candidates in CANDIDATES:
        for l1 in PENALTIES:
            row = likelihood(name, X, "drill", f"{candidates} {l1:g}", {"n_neighbors": candidates, "l1": l1})
            print(row, flush=True)
            rows.append(row)
    return rows


def read_rows(path: Path) -> list[Likely]:
    """Return the rows of a file, none if it is missing."""
    if not path.exists():
        return []
    return [Likely(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def keep(rows: list[Likely], path: Path) -> None:
    """Write the rows to a file, with the kept rows of other sets."""
    names = {row.data for row in rows}
    rows = [row for row in read_rows(path) if row.data not in names and row.data in REAL] + rows
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")
