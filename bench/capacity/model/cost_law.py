"""A cost as a sum of terms: each is a coefficient times a product of powers of factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glle_engine.methods.costs import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Law:
    r"""A cost :math:`c(v) = \sum_t a_t \prod_f v_f^{e_{tf}}`, and its prediction errors.

    Parameters
    ----------
    terms
        Coefficients a_t >= 0 by term, such as ``"n k^2"``, ``"n log(n)"`` or ``"1"``.
    median, worst
        Over the settings left out of a trial fit: median and maximum of predicted / measured or its inverse,
        whichever is above 1; 1 if the cost was always zero.
    settings
        Number of settings of the fit.

    """

    terms: dict[str, float]
    median: float = 1.0
    worst: float = 1.0
    settings: int = 0

    def at(self, values: Mapping[str, float]) -> float:
        """Return the cost of these values; `KeyError` names a missing factor."""
        return evaluate(self.terms, values)
