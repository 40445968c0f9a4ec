r"""Supervised LLE: points of another class are further away.

.. math:: \Delta' = \Delta + \alpha \max(\Delta)\, \Lambda

with :math:`\Delta` the Euclidean distances and :math:`\Lambda_{ij} = 1` where the classes of i and j differ, 0
elsewhere (de Ridder, Kouropteva, Okun, Pietikainen and Duin 2003). :math:`\Delta'` chooses the neighbours; weights and
embedding are LLE's. At :math:`\alpha = 0` the result is LLE's. At :math:`\alpha = 1` (1-SLLE) a point has neighbours of
its own class only, the graph falls into the c classes, and the c - 1 bottom eigenvectors other than the constant are
constant on each: every class falls onto one point of c - 1 dimensions, as the paper says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist

from glle_engine.base.diagnostics import Note
from glle_engine.base.progress import blocks
from glle_engine.graph.connectivity import components
from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.lle_variants.rewired import require_whole, smallest_of_rows
from glle_engine.methods.parameters import choice, number
from glle_engine.methods.spectral import lle
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_BLOCK_ENTRIES = 1 << 21


@dataclass(frozen=True, kw_only=True)
class SupervisedLleSpec(LleSpec):
    """The parameters of supervised LLE."""

    alpha: float = number(
        0.01,
        "How much further away another class is, in units of the diameter of the data: 0 is LLE, 1 gives each point "
        "neighbours of its own class only.",
        least=0,
        most=1,
    )
    disconnected: str = choice(
        "refuse",
        "What to do where the classes no longer hang together: refuse, or collapse each component onto a point.",
        "refuse",
        "collapse",
    )


def supervised_neighbors(
    X: NDArray[np.float64], labels: NDArray[np.int64], k: int, alpha: float, on_progress: OnProgress
) -> tuple[NDArray[np.int32], float]:
    """Return the k nearest by the supervised distance (n, k), nearest first, and the diameter of the data."""
    n = len(X)
    size = max(1, _BLOCK_ENTRIES // n)
    diameter = 0.0
    for rows in blocks(n, size, "diameter", on_progress):
        diameter = max(diameter, float(cdist(X[rows], X).max()))
    nearest = np.empty((n, k), np.int32)
    for rows in blocks(n, size, "supervised neighbors", on_progress):
        distances = cdist(X[rows], X)
        distances += alpha * diameter * (labels[rows, None] != labels)
        distances[np.arange(len(distances)), np.arange(n)[rows]] = np.inf
        nearest[rows] = smallest_of_rows(distances, k)
    return nearest, diameter


def run(
    X: NDArray[np.float64], spec: SupervisedLleSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the neighbours of least supervised distance."""
    assert labels is not None  # Method.labels: `embed` refuses data without
    nearest, diameter = supervised_neighbors(X, labels, spec.n_neighbors, spec.alpha, on_progress)
    if spec.disconnected == "refuse":
        require_whole(
            nearest,
            f"With alpha={spec.alpha:g}",
            "Lower alpha, raise n_neighbors, or let every component fall onto a point: disconnected='collapse'.",
        )
    count = int(components(nearest).max()) + 1
    found = lle_of(X, nearest, spec, on_progress)
    figures = {
        **found.figures,
        "components": count,
        "own_class": float((labels[nearest] == labels[:, None]).mean()),
        "diameter": diameter,
    }
    return Embedding(found.Y, found.eigenvalues, figures, _notes(count, spec.n_components))


def _notes(count: int, p: int) -> tuple[Note, ...]:
    """Say what a graph of several components does to the embedding."""
    if count == 1:
        return ()
    flat = min(p, count - 1)
    told = (
        f"The graph falls into {count} components; in the first {flat} of {p} dimensions each lies on a point, and "
        "distances inside it mean nothing there. A smaller alpha keeps the shape of the classes."
    )
    return (Note("components-collapsed", told),)


def cost(n: int, d: int, spec: SupervisedLleSpec) -> Cost:
    """Return the cost of LLE and of all distances, twice."""
    whole = lle.cost(n, d, spec)
    return Cost(
        seconds=whole.seconds + (1.8e-8 + 2.4e-9 * d) * n * n, bytes=whole.bytes + 4 * 8.0 * max(_BLOCK_ENTRIES, n)
    )


METHOD = Method(
    name="supervised-lle",
    title="Supervised LLE",
    family="extension of LLE",
    about="LLE whose neighbours are nearest by Delta + alpha max(Delta) where the classes differ, Delta elsewhere.",
    source="de Ridder, Kouropteva, Okun, Pietikainen and Duin 2003, ICANN; survey arXiv 2011.10925",
    spec=SupervisedLleSpec,
    run=run,
    refuse=lle.refuse,
    cost=cost,
    growth="n^2 d",
    reproducible=True,
    labels=True,
)
