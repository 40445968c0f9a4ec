r"""Trust in a fit: how well its embedding and a few of its draws keep neighbors.

Trust is the trustworthiness (`glle_engine.metrics.ranks`) at 10 neighbors of `PROBES` points. Draws are those of the
seed `SEED` at scale 1, so that the trust is a function of data and parameters. It serves two purposes:

- ``noise="auto"`` fits both laws on one graph and keeps that whose draws have the higher trust. Neither law is better
  for all data, and the noise alone does not decide (docs/explanation/posterior.md).
- A *mode swap* puts a harmonic of a long coordinate in the place of a short one. The bottom `FURTHER` coordinates then
  keep neighbors, the first p do not, although the data have only p dimensions. The usual cause are few neighbors, so
  that draws are measured there as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.diagnostics import Diagnostics, Note
from glle_engine.base.errors import ConvergenceError
from glle_engine.eigen.eigenproblem import scale_embedding
from glle_engine.graph.sparse import SparsePoints
from glle_engine.metrics.ranks import trustworthiness

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine.base.spec import FitSpec, Noise
    from glle_engine.graph.relations import Data
    from glle_engine.posterior.posterior import Posterior

LAWS: tuple[Noise, ...] = ("isotropic", "tangent")
TRUSTED = 0.99  # goal of draws at scale 1 (docs/explanation/posterior.md)
LEFT = 0.25  # of the shortfall of trust, in the bottom coordinates: at most .2 on sheets, at least .3 on digits
FURTHER = 10  # coordinates; a sheet's short side came fifth at most
PROBES = 300
DRAWS = 8
SEED = 2**63  # apart from the draws that people ask for
FEW_NEIGHBORS = 10  # below the default, draws swap modes although the embedding may not
SPARE_DIMENSIONS = 0.8  # estimate of the dimension beyond p: .76 at most on sheets with noise .03


@dataclass(frozen=True)
class Trust:
    """Trustworthiness in [0, 1] of the embedding, and the mean of draws, which may be unknown."""

    embedding: float
    draws: float | None = None

    @property
    def least(self) -> float:
        """The lower one."""
        return self.embedding if self.draws is None else min(self.embedding, self.draws)


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


def of_chosen_noise(X: Data, spec: FitSpec, fitted: Callable[[FitSpec], Posterior]) -> tuple[Posterior, Trust]:
    """Fit both laws of the noise, and return the posterior of that whose draws keep neighbors better, with its trust.

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
    posterior : Posterior
        With the law in its specification, the same arrays as that of a fit with this law, the figure `noise` and a
        note.
    trust : Trust

    """
    posteriors = {law: fitted(replace(spec, noise=law)) for law in LAWS}
    kept = {law: trust_of_draws(X, posterior) for law, posterior in posteriors.items()}
    law: Noise = "tangent" if kept["tangent"] > kept["isotropic"] else "isotropic"
    note = Note(
        "noise-chosen",
        f"noise='{law}' was chosen, because {DRAWS} draws at scale 1 keep neighbors better: trustworthiness "
        f"{kept['isotropic']:.3f} isotropic, {kept['tangent']:.3f} tangent.",
    )
    posterior = with_findings(posteriors[law], {"noise": {"law": law, **kept}}, note)
    return posterior, Trust(trust_of(X, posterior.embedding), kept[law])


def with_trust(
    X: Data,
    posterior: Posterior,
    trust: Trust | None,
    dimension: float,
) -> Posterior:
    """Return a posterior with its trust among the figures, and a note if it is a mode swap.

    Parameters
    ----------
    X : (n, d)
        In the unit of computation.
    posterior : Posterior
        Of the constrained variant.
    trust : Trust, optional
        If it is known. Else that of the embedding, and for fewer than `FEW_NEIGHBORS` neighbors of draws, is measured.
    dimension : float
        Estimate of the dimension of the data.

    """
    p, k = posterior.spec.n_components, posterior.spec.n_neighbors
    if trust is None:
        draws = trust_of_draws(X, posterior) if k < FEW_NEIGHBORS else None
        trust = Trust(trust_of(X, posterior.embedding), draws)
    figures: dict[str, Any] = {"trustworthiness": trust.embedding}
    if trust.draws is not None:
        figures["trustworthiness_of_draws"] = trust.draws
    if trust.least >= TRUSTED or dimension >= p + SPARE_DIMENSIONS:
        return with_findings(posterior, figures)
    bottom = _trust_of_bottom(X, posterior)
    if 1 - bottom > LEFT * (1 - trust.least):
        return with_findings(posterior, figures)
    return with_findings(posterior, figures, _swap_note(p, trust, bottom))


def is_examinable(X: Data, spec: FitSpec, *, given_neighbors: bool) -> bool:
    """Return whether trust is defined: for a constrained posterior of dense data, with neighbors that were searched."""
    return spec.variant == "constrained" and not isinstance(X, SparsePoints) and not given_neighbors and len(X) > 3


def with_findings(posterior: Posterior, figures: dict[str, Any], *notes: Note) -> Posterior:
    """Return a posterior with further figures and notes."""
    known = posterior.diagnostics
    return replace(posterior, diagnostics=Diagnostics({**known.figures, **figures}, (*known.notes, *notes)))


def _trust_of_bottom(X: Data, posterior: Posterior) -> float:
    """Return the trust of the bottom `FURTHER` coordinates together; 0 if no solver finds them."""
    wanted = min(FURTHER, len(X) - 2)
    try:
        pairs = posterior.eigenproblem.solve(posterior.law.mean, wanted)  # a further copy of one would change little
    except ConvergenceError:
        return 0.0
    return trust_of(X, scale_embedding(pairs.vectors[:, :wanted]))


def _swap_note(p: int, trust: Trust, bottom: float) -> Note:
    """Return the note on a mode swap of the embedding, or of its draws."""
    measured = f"with trustworthiness {trust.embedding:.3f}"
    if trust.draws is not None:
        measured += f", draws with {trust.draws:.3f}"
    subject = "The embedding is" if trust.embedding < TRUSTED else "Draws are"
    return Note(
        "mode-swap",
        f"{subject} a mode swap: the first {p} coordinates keep neighbors {measured}, the first {FURTHER} with "
        f"{bottom:.3f}, so that a harmonic of one coordinate is in the place of another, or the data cannot be laid "
        "flat. Try a larger n_neighbors; advice shows the trustworthiness over a range.",
    )
