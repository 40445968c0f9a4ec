"""Gallery of audits: `python -m docs.figures.audits` draws docs/images/audits.png, and prints the verdicts.

It also prints how well the score `stretch` finds torn points, as the area under the ROC curve. The map is t-SNE of a
Swiss roll at perplexity 150 (Liu, Ma and Zhong, "Assessing and improving reliability of neighbor embedding methods",
Nature Communications 2025, Fig. 7). A point is torn if a tenth of its neighbors on the unrolled sheet are far from it
in the map.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from sklearn.metrics import roc_auc_score

from glle_engine import manifolds
from glle_engine.audit.audit import audit
from glle_engine.base.pictures.plotting import BACKGROUND, Panel, draw
from glle_engine.graph.neighbors import kneighbors
from glle_engine.reliability.thresholds import FAR_RATIO_IN_MAP, MAX_TORN_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from glle_engine.audit.result import Audit

    Array = NDArray[np.float64]

PICTURE = Path(__file__).parents[1] / "images" / "audits.png"
COLUMNS, PANEL_INCHES, PIXELS = 3, 3.9, 1500  # panels per row, width of a panel, width of the picture
TEXT_INCHES = 3.2  # lines of text are narrower than their panel, so that the texts of two panels do not touch
ROLL, PERPLEXITY, NEIGHBORS = 1000, 150, 15


def roll() -> manifolds.Manifold:
    """Return the Swiss roll whose map by t-SNE is torn, as in the published example."""
    return manifolds.make("swiss_roll", ROLL, seed=0)


def audit_of_roll(X: Array) -> Audit:
    """Audit t-SNE of the Swiss roll at the published perplexity."""
    return audit(X, method="t-sne", parameters={"perplexity": PERPLEXITY})


def torn(sheet: Array, Y: Array) -> NDArray[np.bool_]:
    """Return whether each point (n,) is torn: a tenth of its neighbors on a sheet (n, 2) are far in a map (n, 2)."""
    near, reach = kneighbors(np.ascontiguousarray(sheet), NEIGHBORS)[0], kneighbors(Y, NEIGHBORS)[1][:, -1]
    apart = np.linalg.norm(Y[:, None] - Y[near], axis=2)
    return np.asarray(
        (apart > FAR_RATIO_IN_MAP * np.maximum(reach[:, None], reach[near])).mean(axis=1) > MAX_TORN_SHARE
    )


def cases() -> Iterator[tuple[str, Audit]]:
    """Yield the title of each panel of the gallery, and the audit that it shows."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 4, 300)
    blobs = 8 * rng.standard_normal((4, 10))[groups] + rng.standard_normal((300, 10))
    yield "True islands: PCA of four groups", audit(blobs, method="pca")
    sheet = np.c_[rng.uniform(-2, 2, (400, 2)), 0.05 * rng.standard_normal((400, 3))]
    sheet[:, 2] += 0.3 * np.sin(2 * sheet[:, 0])
    yield "Cut islands: a function that cuts one sheet", audit(sheet, method=_cut)
    yield f"Tear: t-SNE of a Swiss roll, perplexity {PERPLEXITY}", audit_of_roll(roll().X)
    two = np.c_[rng.standard_normal((300, 2)), 0.1 * rng.standard_normal((300, 4))]
    two[:60, :3] += [9, 0, 6]
    laid = two[:, :2].copy()
    laid[:60] -= [8.5, 0]
    yield "Glue: a group laid onto another one, coordinates alone", audit(two, laid)
    batch = rng.integers(0, 2, 300)
    factors = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 15)) + 0.5 * rng.standard_normal((300, 15))
    shifted = factors + 4 * batch[:, None] * rng.standard_normal(15)
    yield (
        "Batch effect: PCA of two batches, labels=batch",
        audit(shifted, method="pca", labels=np.where(batch, "second batch", "first batch")),
    )
    yield "Noise: PCA of independent features", audit(rng.standard_normal((300, 8)), method="pca")
    yield "Too few points: PCA of 50 rows of noise", audit(rng.standard_normal((50, 8)), method="pca")
    units = np.c_[300 * rng.standard_normal(200), rng.standard_normal((200, 2)) @ rng.standard_normal((2, 5))]
    yield "One column: PCA of columns with different units", audit(units, method="pca")


def _cut(points: Array) -> Any:
    return np.c_[points[:, 0] + 3 * (points[:, 0] > 0.3), points[:, 1]]


def draw_rows(panels: Sequence[Panel]) -> None:
    """Write the picture of panels, with the legend of the first panel that has one."""
    handles = next((handles for panel in panels if (handles := panel.colors.handles())), [])
    rows = -(-len(panels) // COLUMNS)
    width = COLUMNS * PANEL_INCHES
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(width, rows * (PANEL_INCHES + 0.35) + 0.35), facecolor=BACKGROUND, layout=layout)
    with mpl.rc_context({"text.parse_math": False}):
        for position, panel in enumerate(panels, start=1):
            draw(figure.add_subplot(rows, COLUMNS, position), panel, inches=TEXT_INCHES)
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7, frameon=False)
        figure.savefig(PICTURE, dpi=PIXELS / width, metadata={"Software": None})


def main() -> None:
    """Draw a panel for each audit of `cases`, and print the verdicts."""
    panels = []
    for name, audited in cases():
        print(f"{name}: {audited.level}: {audited.verdict}")
        if name.startswith("Tear"):
            is_torn = torn(roll().coordinates, audited.embedding)
            print(f"  {is_torn.sum()} torn points, area under the curve {roc_auc_score(is_torn, audited.stretch):.2f}")
        panel = Panel.from_result(audited)
        panels.append(replace(panel, below=f"{name}\n{panel.below}"))
    draw_rows(panels)


if __name__ == "__main__":
    main()
