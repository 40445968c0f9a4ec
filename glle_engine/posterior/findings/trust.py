r"""The noise of ``noise="auto"``: the law whose draws keep neighbors better.

Both laws are fitted on one graph. The trust of a law is the trustworthiness (`glle_engine.metrics.ranks`) at 10
neighbors of `PROBES` points in `DRAWS` draws of the seed `SEED` at scale 1, so that the choice is a function of data
and parameters. Neither law is better for all data, and the noise alone does not decide (docs/explanation/posterior.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.diagnostics import Diagnostics, Note
from glle_engine.base.errors import ConvergenceError
from glle_engine.metrics.ranks import trustworthiness

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec, Noise
    from glle_engine.graph.relations import Data
    from glle_engine.posterior.posterior import Posterior

LAWS: tuple[Noise, ...] = ("isotropic", "tangent")
PROBES = 300
DRAWS = 8
SEED = 2**63  # apart from the draws that people ask for


def trust_of(X: Data, Y: NDArray[np.float64]) -> float:
    """Return the trustworthiness of coordinates Y (n, q) of data X (n, d), on the same points for all of them."""
    n = len(Y)
    points = np.random.default_rng(0).permutation(n)[:PROBES]
    return trustworthiness(X, np.ascontiguousarray(Y), min(10, (n - 1) // 2), points)


def trust_of_draws(X: Data, posterior: Posterior) -> float:
    """Return the mean trustworthiness of `DRAWS` draws at scale 1; 0 if one of them has no solution."""
    try:
        return float(np.mean([trust_of(X, draw.embedding) for draw in posterior.draws(DRAWS, seed=SEED)]))
    except ConvergenceError:
        return 0.0


def of_chosen_noise(X: Data, spec: FitSpec, fitted: Callable[[FitSpec], Posterior]) -> Posterior:
    """Fit both laws of the noise, and return the posterior of that whose draws keep neighbors better.

    Parameters
    ----------
    X : (n, d)
        In the unit of computation.
    spec : FitSpec
        With ``noise="auto"``.
    fitted : callable
        Returns the posterior of a specification.

    Returns
    -------
    Posterior
        With the law in its specification, the same arrays as that of a fit with this law, the figure `noise` and a
        note.

    """
    posteriors = {law: fitted(replace(spec, noise=law)) for law in LAWS}
    kept = {law: trust_of_draws(X, posterior) for law, posterior in posteriors.items()}
    law: Noise = "tangent" if kept["tangent"] > kept["isotropic"] else "isotropic"
    note = Note(
        "noise-chosen",
        f"noise='{law}' was chosen, because {DRAWS} draws at scale 1 keep neighbors better: trustworthiness "
        f"{kept['isotropic']:.3f} isotropic, {kept['tangent']:.3f} tangent.",
    )
    known = posteriors[law].diagnostics
    diagnostics = Diagnostics({**known.figures, "noise": {"law": law, **kept}}, (*known.notes, note))
    return replace(posteriors[law], diagnostics=diagnostics)
