"""Two samples of one study and their maps, with the audit of the first one: the picture of the README's first screen.

`python -m docs.figures.believe.why` prints the statements and what the second sample shows of them, and writes the
picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

import glle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

PICTURE = Path(__file__).parents[2] / "images" / "why.png"
METHOD, K = "umap", 15
CERTAIN = 0.9  # probability of a group to be apart from another one, on average, of a colored group
FAINT, INK = "#c9c9c9", "#777"


def halves() -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Split scikit-learn's digits at random into two samples, each with its data (n, 64) and labels (n,)."""
    X, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return [(X[half], labels[half]) for half in np.array_split(order, 2)]


def shares_apart(Y: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of the other groups from which each group is apart in a map, (number of groups,).

    Two groups are apart if nine tenths of the points of each are nearer to its center than to the other center.
    """
    groups = np.unique(labels)
    distance = np.stack([np.linalg.norm(Y - Y[labels == g].mean(axis=0), axis=1) for g in groups], axis=1)
    to_group = distance[np.arange(len(Y)), np.searchsorted(groups, labels)]
    nearer = np.stack([(to_group[:, None] < distance)[labels == g].mean(axis=0) for g in groups])
    apart = np.minimum(nearer, nearer.T) >= 0.9
    np.fill_diagonal(apart, val=False)
    return np.asarray(apart.sum(axis=1) / (len(groups) - 1))


def turn(Y: NDArray[np.float64], labels: NDArray[np.int64], shown: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the map Y aligned (moved, rotated, reflected, scaled) so that its group centers are nearest to `shown`."""
    centers = np.stack([Y[labels == g].mean(axis=0) for g in np.unique(labels)])
    origin, target = centers.mean(axis=0), shown.mean(axis=0)
    left, sizes, right = np.linalg.svd((centers - origin).T @ (shown - target))
    scale = sizes.sum() / ((centers - origin) ** 2).sum()
    return np.asarray((Y - origin) @ (left @ right) * scale + target)


def panel(axes: Axes, title: str, Y: NDArray[np.float64], labels: NDArray[np.int64], certain: NDArray[Any]) -> None:
    """Draw a map with the names of its groups; the groups in `certain` have colors, the others are gray."""
    colors = {group: f"C{index}" for index, group in enumerate(certain)}
    for group in np.unique(labels):
        places = Y[labels == group]
        axes.scatter(places[:, 0], places[:, 1], s=9, c=colors.get(group, FAINT), lw=0)
        middle = np.median(places, axis=0)
        axes.annotate(
            str(group), (float(middle[0]), float(middle[1])), fontsize=13, ha="center", va="center",
            weight="bold" if group in colors else "normal", color="black" if group in colors else INK,
        )  # fmt: skip
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.set_title(title, fontsize=10)


def main() -> None:
    """Print how far apart the audit states each group to be, and what both maps show; save the picture."""
    (X, labels), (X_new, labels_new) = halves()
    audited = glle.audit(X, method=METHOD, parameters={"n_neighbors": K}, labels=labels)
    assert audited.groups is not None
    stated = audited.groups.apart.sum(axis=1) / (len(audited.groups.names) - 1)
    certain = np.asarray(audited.groups.names)[stated >= CERTAIN]
    Y_new = glle.embed(X_new, METHOD, n_neighbors=K).Y
    seen, seen_new = shares_apart(audited.embedding, labels), shares_apart(Y_new, labels_new)
    print(audited.verdict)
    for row in zip(audited.groups.names, stated, seen, seen_new, strict=True):
        print("{}: stated {:.2f}, apart in this map {:.2f}, in the map of the second sample {:.2f}".format(*row))
    shown = np.stack([audited.embedding[labels == g].mean(axis=0) for g in np.unique(labels)])
    Y_new = turn(Y_new, labels_new, shown)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharex=True, sharey=True)
    panel(axes[0], f"Sample 1: {len(X)} handwritten digits", audited.embedding, labels, certain)
    panel(axes[1], f"Sample 2: {len(X_new)} others, the same method", Y_new, labels_new, certain)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
