"""A cost as a sum of terms, each a coefficient times a product of powers of what it depends on."""

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
    r"""A cost :math:`c(v) = \sum_t a_t \prod_f v_f^{e_{tf}}`, and how well it tells what was measured.

    Parameters
    ----------
    terms
        Coefficients a_t >= 0 by term, such as ``"n k^2"``, ``"n log(n)"`` or ``"1"``.
    median, worst
        Of the settings that were left out of a trial fit, the median and the largest of predicted / measured or its
        inverse, whichever is above 1; 1 where the cost was never above nothing.
    settings
        How many settings it was fitted to.

    """

    terms: dict[str, float]
    median: float = 1.0
    worst: float = 1.0
    settings: int = 0

    def at(self, values: Mapping[str, float]) -> float:
        """Return the cost of these values; `KeyError` names what is missing."""
        return sum(coefficient * product(term, values) for term, coefficient in self.terms.items())


def product(term: str, values: Mapping[str, float]) -> float:
    """Return a term without its coefficient: ``"n k^2"`` of n = 3, k = 2 is 12."""
    found = 1.0
    for factor in term.split():
        if factor != "1":
            parts = _FACTOR.fullmatch(factor)
            assert parts is not None, f"{factor!r} is no factor"
            logarithm, name, power = parts.groups()
            value = values[name]
            found *= (math.log(value) if logarithm else value) ** int(power or 1)
    return found
