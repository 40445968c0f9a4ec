r"""Expected seconds and bytes of an embedding: one law for all methods, with measured coefficients.

A cost is :math:`\sum_t a_t \prod_f v_f^{e_{tf}}` with terms such as ``n k^2`` or ``steps n log(n)``. `costs.json` holds
the coefficients :math:`a_t \ge 0` of each method, and of each route of a method that has several, as
``"isomap"`` or ``"t-sne, interpolated"``. The command in that file measures them again.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from glle_engine.posterior.cost.estimate import Cost

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MARGIN", "TABLE", "Cost", "estimate", "evaluate", "product", "table"]

TABLE = Path(__file__).with_name("costs.json")

TREE_FEATURES = 15  # most features of a search by a tree (`glle_engine.graph.neighbors`)
SHEET_FEATURES = 3  # most features of neighbor graphs with small separators, whose factors stay sparse
_CACHED_POINTS = 1e4  # most points whose sparse factors fit in the cache
_FILLED_POINTS = 6e3  # points above which the time of filled factors grows like n^3
_BLOCK_ENTRIES = 1 << 21
MARGIN = 3.0  # of the expected seconds over the measured ones, for slower machines and shared cores
_FACTOR = re.compile(r"(?:(log)\()?([a-z_]+)\)?(?:\^([0-9]+))?")


def estimate(
    row: str, n: int, d: int, *, k: float = 0, p: int = 2, m: int = 0, steps: float = 0, by_tree: bool | None = None
) -> Cost:
    """Return the expected cost.

    Parameters
    ----------
    row : str
        Of the table: a method or one of its routes.
    n, d, k, p : int
        Points, features, neighbors and components.
    m : int
        Points of a second kind: landmarks, or points added later.
    steps : float
        Expected iterations.
    by_tree : bool, optional
        Whether the search of neighbors costs as by a tree. Default: by the number of features.

    """
    by_tree = d <= TREE_FEATURES if by_tree is None else by_tree
    fills = d > SHEET_FEATURES
    values = {
        "n": n,
        "d": d,
        "k": k,
        "p": p,
        "m": m,
        "steps": steps,
        "r": min(n, d),
        "q": min(d, k),
        "tree": n * k if by_tree else 0,
        "scan": 0 if by_tree else n * n * d,
        "solve": n * max(1.0, n / _CACHED_POINTS) ** 0.3,
        "fill": n * n * k * max(1.0, n / _FILLED_POINTS) if fills else 0,
        "filled": n * n * min(1.0, k / 60) if fills else 0,  # entries of the factors
        "block": min(n * n, _BLOCK_ENTRIES),
    }
    terms = table()[row]
    return Cost(MARGIN * evaluate(terms["seconds"], values), evaluate(terms["bytes"], values))


@cache
def table() -> dict[str, dict[str, dict[str, float]]]:
    """Return the coefficients by row, unit ("seconds" or "bytes") and term."""
    rows: dict[str, dict[str, dict[str, float]]] = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]
    return rows


def evaluate(terms: Mapping[str, float], values: Mapping[str, float]) -> float:
    """Return the sum of the terms."""
    return sum(coefficient * product(term, values) for term, coefficient in terms.items())


def product(term: str, values: Mapping[str, float]) -> float:
    """Return a term without its coefficient: ``"n k^2"`` of n = 3, k = 2 is 12."""
    result = 1.0
    for factor in term.split():
        if factor != "1":
            parts = _FACTOR.fullmatch(factor)
            assert parts is not None, f"{factor!r} is no factor"
            logarithm, name, power = parts.groups()
            value = values[name]
            result *= (math.log(value) if logarithm else value) ** int(power or 1)
    return result
