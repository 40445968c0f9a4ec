"""Data of the comparison: four sheets, the digits, and two real sets if present."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits

from glle_engine import manifolds

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SIZES = (1000, 500, 250, 120)  # a method takes the largest within its time
STRIPS = 5  # classes of a sheet, by the arc, for the methods that need labels
REAL = {"mocap_run1": ("motion capture, a run", 6), "robot_wifi": ("robot, wireless signals", 7)}
SHEETS = {
    "s_curve": "S-curve",
    "swiss_roll": "Swiss roll",
    "swiss_roll_hole": "roll with a hole",
    "severed_bowl": "severed bowl",
}


@dataclass(frozen=True, eq=False)
class DataSet:
    """Data set of the comparison.

    Attributes
    ----------
    name, title : str
    X : (n, d) float64
    k : int
        Neighbors, of the methods and of the scores.
    color : (n,) float64
        The true arc, the digit, or the time.
    truth : (n, q) float64, optional
    labels : (n,) int64, optional
        For the methods that need them, and for the score of the digits.

    """

    name: str
    title: str
    X: NDArray[np.float64]
    k: int
    color: NDArray[np.float64]
    truth: NDArray[np.float64] | None = None
    labels: NDArray[np.int64] | None = None


def names(data: Path) -> list[str]:
    """Return the names of the present sets; print those of the missing ones."""
    present = [*SHEETS, "digits"]
    for name in REAL:
        if (data / f"{name}.npy").exists():
            present.append(name)
        else:
            print(f"{name}.npy is not in {data}: nothing is measured on it.")
    return present


def make(name: str, n: int, data: Path) -> DataSet:
    """Return n points of a set, or all of a real one."""
    if name in SHEETS:
        sheet = manifolds.make(name, n, seed=0)
        truth = sheet.coordinates
        arc = truth[:, 0]
        strips = np.digitize(arc, np.quantile(arc, np.linspace(0, 1, STRIPS + 1)[1:-1])).astype(np.int64)
        return DataSet(name, SHEETS[name], sheet.X, 10, arc, truth, strips)
    if name == "digits":
        digits = load_digits()
        target = digits.target[:n].astype(np.int64)
        return DataSet(name, "digits", digits.data[:n], 10, target.astype(float), labels=target)
    title, k = REAL[name]
    X = np.load(data / f"{name}.npy", allow_pickle=False)
    track = data / f"{name}_xy.npy"
    positions = np.load(track, allow_pickle=False) if track.exists() else None
    return DataSet(name, title, X, k, np.arange(len(X), dtype=float), positions)
