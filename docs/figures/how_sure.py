"""Regions where the spread is reliable and where it is not: the picture of docs/explanation/how-sure.md.

`python -m docs.figures.how_sure` prints the statements, and writes the picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Ellipse

from glle_engine import fit, manifolds
from glle_engine.reliability.ensemble import Ensemble, ensemble

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

PICTURE = Path(__file__).parents[1] / "images" / "how-sure.png"
POINTS, K = 500, 10
EVERY = 4  # of the points have their regions in the picture
INK, SOFT = "#1b6ca8", "#c9dff0"


def data_sets() -> dict[str, NDArray[np.float64]]:
    """Return data (n, d) by title: a sheet, and three groups without a form in 50 dimensions."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((3, 50)) * 0.6
    return {
        "a sheet that is bent in space": manifolds.make("s_curve", POINTS, seed=0).X,
        "three round groups in 50 dimensions": centers[np.arange(POINTS) % 3] + rng.standard_normal((POINTS, 50)),
    }


def panel(axes: Axes, title: str, found: Ensemble) -> None:
    """Draw the points, and the 50 % and 90 % regions of every fourth one."""
    center = found.regions.center
    for level, color in ((0.9, SOFT), (0.5, INK)):
        for i in range(0, len(center), EVERY):
            long, short = found.regions.axes(level)[i]
            angle = np.degrees(np.arctan2(long[1], long[0]))
            width, height = 2 * float(np.linalg.norm(long)), 2 * float(np.linalg.norm(short))
            place = (float(center[i, 0]), float(center[i, 1]))
            axes.add_patch(Ellipse(place, width, height, angle=angle, fc="none", ec=color, lw=0.7, zorder=1))
    axes.scatter(center[:, 0], center[:, 1], s=4, c="#222", lw=0, zorder=2)
    axes.set(title=f"{title}\nhow sure: {found.reliability.level}", xticks=[], yticks=[], aspect="equal")


def main() -> None:
    """Print the statements, and write the picture."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.6))
    for place, (title, X) in zip(axes, data_sets().items(), strict=True):
        found = ensemble(fit(X, n_neighbors=K, disconnected="bridge"), X)
        print(f"{title}: {found.reliability.level}. {found.reliability.reason}")
        print(f"  median spread {np.median(found.spread):.2f}, radii {found.regions.radii}")
        panel(place, title, found)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main()
