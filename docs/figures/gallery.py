"""Pictures of docs/tutorials/gallery.md, each of which shows several values of one parameter on three data sets.

`python -m docs.figures.gallery k noise` draws only the pictures of the named parameters.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

import glle
from docs.figures.methods.picture import save

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    Embed = Callable[[NDArray[np.float64]], NDArray[np.float64]]

IMAGES = Path(__file__).parents[1] / "images"
POINTS = 800


def data_sets() -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64], str]]:
    """Return points, colors and the color map of each data set."""
    roll = glle.datasets.make("swiss_roll", POINTS, seed=0)
    curve = glle.datasets.make("s_curve", POINTS, noise=0.03, seed=0)
    digits = load_digits()
    return {
        "Swiss roll": (roll.X, roll.coordinates[:, 0], "Spectral"),
        "noisy S-curve": (curve.X, curve.coordinates[:, 0], "Spectral"),
        "digits": (digits.data[:POINTS], digits.target[:POINTS].astype(float), "tab10"),
    }


def neighbors(k: int) -> Embed:
    """Return a function from data to the mean embedding of a posterior with k neighbors."""
    return lambda X: glle.fit(X, n_neighbors=k).embedding


def draw(scale: float | Literal["auto"] = 1.0, **options: Any) -> Embed:
    """Return a function from data to a draw of a posterior; `options` are parameters of the fit."""
    return lambda X: glle.fit(X, **options).draw(1, scale=scale).embedding


def method(name: str) -> Embed:
    """Return a function from data to the embedding by a method."""
    return lambda X: glle.embed(X, name).Y


GALLERY: dict[str, dict[str, Embed]] = {
    "k": {f"n_neighbors={k}": neighbors(k) for k in (6, 10, 15, 25, 40)},
    "scale": {f"scale={scale!r}": draw(scale) for scale in (0, 0.1, 1, 10, "auto")},
    "noise": {
        "isotropic": draw(),
        "tangent": draw(noise="tangent"),
        "auto": draw(noise="auto"),
        "isotropic, adaptive": draw(neighborhoods="adaptive"),
    },
    "method": {name: method(name) for name in ("pca", "isomap", "lle", "t-sne", "umap")},
}  # fmt: skip


def picture(columns: Mapping[str, Embed], path: Path) -> None:
    """Write a picture with a row for each data set and a column for each value."""
    rows = data_sets()
    shape = (len(rows), len(columns))
    figure, axes = plt.subplots(*shape, figsize=(1.5 * shape[1], 1.5 * shape[0]), layout="constrained", squeeze=False)
    for line, (name, (X, color, cmap)) in zip(axes, rows.items(), strict=True):
        for ax, (title, embed) in zip(line, columns.items(), strict=True):
            ax.scatter(*embed(X).T, c=color, cmap=cmap, s=2, linewidths=0)
            ax.set_xticks([])
            ax.set_yticks([])
            if ax in axes[0]:
                ax.set_title(title, fontsize=7)
        line[0].set_ylabel(name, fontsize=7)
    save(figure, path)


def main() -> None:
    """Draw the pictures of the parameters that the command line names, or all."""
    for name, columns in GALLERY.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        picture(columns, IMAGES / f"gallery-{name}.png")


if __name__ == "__main__":
    main()
