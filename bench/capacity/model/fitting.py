"""Coefficients of laws: nonnegative least squares of the relative error, checked on left-out settings."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import lsq_linear

from bench.capacity.model.cost_law import Law
from glle_engine.methods.costs import product

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOLDOUT = 3  # one setting in this many is left out of the trial fit
DIGITS = 4
RIDGE = 1e-6
NOTHING = 1e-3  # fraction of every cost below which a term is dropped


def fitted(rows: Sequence[Mapping[str, float]], cost_name: str, terms: Sequence[str], least: float = 0.0) -> Law:
    r"""Return the law of a cost: :math:`\min_{a \ge 0} \sum_r (c_a(r) / y_r - 1)^2`.

    Parameters
    ----------
    rows
        Settings, each with the cost `cost_name` that was measured there.
    least
        Smallest cost that differs from zero. Settings below it are left out; if most are below it, the cost is zero.

    """
    nonzero = [row for row in rows if row[cost_name] > least]
    if not terms or 2 * len(nonzero) < len(rows):
        return Law(terms={}, settings=len(rows))
    trial = [row for number, row in enumerate(nonzero) if number % HOLDOUT != HOLDOUT - 1]
    tried = Law(terms=_coefficients(trial, cost_name, terms))
    others = [row for number, row in enumerate(nonzero) if number % HOLDOUT == HOLDOUT - 1]
    ratios = [tried.at(row) / row[cost_name] for row in others]
    errors = [max(ratio, 1 / ratio) if ratio > 0 else float("inf") for ratio in ratios] or [1.0]
    return Law(
        terms=_coefficients(nonzero, cost_name, terms),
        median=round(statistics.median(errors), 2),
        worst=round(max(errors), 2),
        settings=len(nonzero),
    )


def _coefficients(rows: Sequence[Mapping[str, float]], cost_name: str, terms: Sequence[str]) -> dict[str, float]:
    cost = np.array([row[cost_name] for row in rows])
    design = np.array([[product(term, row) for term in terms] for row in rows]) / cost[:, None]
    size = np.maximum(np.linalg.norm(design, axis=0), 1e-300)  # a term may be 0 everywhere
    scaled = np.vstack([design / size, RIDGE * np.eye(len(terms))])  # as many rows as columns, and never singular
    target = np.concatenate([np.ones(len(design)), np.zeros(len(terms))])
    coefficients = lsq_linear(scaled, target, bounds=(0, np.inf), method="bvls").x / size
    share = (design * coefficients).max(axis=0)
    rounded = [float(f"{coefficient:.{DIGITS}g}") for coefficient in coefficients]
    return {term: value for term, value, part in zip(terms, rounded, share, strict=True) if part > NOTHING}
