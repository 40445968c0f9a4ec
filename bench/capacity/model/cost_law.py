"""A cost as a sum of terms: each is a coefficient times a product of powers of factors."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_FACTOR = re.compile(r"(?:(log)\()?([a-z_]+)\)?(?:\^([0-9]+))?")


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
        return sum(coefficient * product(term, values) for term, coefficient in self.terms.items())


def product(term: str, values: Mapping[str, float]) -> float:
    """Return a term without its coefficient: ``"n k^2"`` of n = 3, k = 2 is 12."""
    found = 1.0
    for factor in term.split():
        if factor != "1":
            parts = _FACTOR.fullmatch(factor)
            assert parts is not None, f"{factor!r} is not a factor"
            logarithm, name, power = parts.groups()
            value = values[name]
            found *= (math.log(value) if logarithm else value) ** int(power or 1)
    return found
