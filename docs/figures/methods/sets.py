"""The data on which methods are compared: four sheets, the digits, and two real sets where they are present."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits

from glle_engine import manifolds

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SIZES = (1000, 500, 250, 120)  # a method takes the largest that it does within the time given
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
    """Data to compare on.

    Attributes
    ----------
    name, title : str
    X : (n, d) float64
    k : int
        Neighbours, of the methods and of the scores.
    colour : (n,) float64
        What pictures colour by: the true arc, the digit, the time.
    truth : (n, q) float64, optional
    labels : (n,) int64, optional
        For the methods that need them; on the digits for the score, too.

    """

    name: str
    title: str
    X: NDArray[np.float64]
    k: int
    colour: NDArray[np.float64]
    truth: NDArray[np.float64] | None = None
    labels: NDArray[np.int64] | None = None


def names(data: Path) -> list[str]:
    """Return the names of the sets there are; say which are not."""
    found = [*SHEETS, "digits"]
    for name in REAL:
        if (data / f"{name}.npy").exists():
            found.append(name)
        else:
            print(f"{name}.npy is not in {data}: nothing is measured on it.")
    return found


def make(name: str, n: int, data: Path) -> DataSet:
    """Return n points of a set; all of a real one, which are few."""
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
    known = np.load(track, allow_pickle=False) if track.exists() else None
    return DataSet(name, title, X, k, np.arange(len(X), dtype=float), known)
