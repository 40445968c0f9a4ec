"""Pictures in the style of GLLE figures 3 (draws) and 4 (scales)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TITLES = {
    "s_curve": "S-curve",
    "swiss_roll": "Swiss roll",
    "swiss_roll_hole": "Swiss roll, hole",
    "severed_bowl": "Severed bowl",
    "digits": "Digits",
}


@dataclass(frozen=True, eq=False)
class Row:
    """A row of a picture: a data set, its LLE embedding, and draws.

    Attributes
    ----------
    name : str
    X : (n, d)
    color : (n,)
        Position along the sheet, or the digit.
    reference : (n, 2)
        The LLE embedding.
    embeddings : (m, n, 2)
        The draws, one in each column of the picture.

    """

    name: str
    X: NDArray[Any]
    color: NDArray[Any]
    reference: NDArray[Any]
    embeddings: NDArray[Any]


def picture(path: Path, rows: list[Row], columns: list[str], title: str) -> None:
    """Save a picture with a row for each data set: the data, the LLE embedding, and draws with the titles `columns`."""
    width = 2 + len(columns)
    figure = plt.figure(figsize=(1.55 * width, 1.6 * len(rows) + 0.7), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for i, row in enumerate(rows):
        _data(figure, (len(rows), width, i * width + 1), row)
        for j, embedding in enumerate([row.reference, *row.embeddings]):
            axes = figure.add_subplot(len(rows), width, i * width + 2 + j)
            _scatter(axes, embedding, row)
            if i == 0:
                axes.set_title(["LLE", *columns][j], fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _colors(row: Row) -> dict[str, Any]:
    if row.name == "digits":
        return {"c": row.color, "cmap": "tab10", "vmin": -0.5, "vmax": 9.5}
    return {"c": row.color, "cmap": "Spectral"}


def _scatter(axes: Any, embedding: NDArray[Any], row: Row) -> None:
    axes.scatter(*embedding[:, :2].T, s=2, linewidths=0, rasterized=True, **_colors(row))
    # The axes exclude a few far outliers, which would shrink the others to a dot; the panel states their number.
    low, high = np.quantile(embedding[:, :2], [0.002, 0.998], axis=0)
    margin = 0.08 * (high - low) + 1e-9
    outside = int(((embedding[:, :2] < low - 3 * margin) | (embedding[:, :2] > high + 3 * margin)).any(axis=1).sum())
    if outside:
        axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
        axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        axes.text(0.98, 0.02, f"{outside} outside", transform=axes.transAxes, fontsize=5, ha="right", va="bottom")
    axes.set_xticks([])
    axes.set_yticks([])


def _data(figure: Any, place: tuple[int, int, int], row: Row) -> None:
    if row.X.shape[1] == 3:
        axes = figure.add_subplot(*place, projection="3d")
        axes.scatter(*row.X.T, s=1, linewidths=0, **_colors(row))
        axes.view_init(40 if row.name == "severed_bowl" else 12, -72)
        axes.set_box_aspect(np.ptp(row.X, axis=0), zoom=1.3)
        axes.set_axis_off()
    else:
        axes = figure.add_subplot(*place)
        padded = np.pad(row.X[:36].reshape(36, 8, 8), ((0, 0), (1, 1), (1, 1)))
        tile = padded.reshape(6, 6, 10, 10).transpose(0, 2, 1, 3).reshape(60, 60)
        axes.imshow(tile, cmap="gray_r")
        axes.set_xticks([])
        axes.set_yticks([])
    axes.set_title(f"{TITLES[row.name]}, n = {len(row.X):,}", fontsize=8)
