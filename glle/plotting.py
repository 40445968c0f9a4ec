"""Pictures of embeddings with matplotlib."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

_MAX_LEGEND = 10  # classes; the default color cycle has as many colors
_OPACITIES = 1.0, 0.15  # of the points of the smallest and of the largest spread
_REGIONS = 10  # points of an audit whose regions are drawn
_TITLE = 70  # letters in a line of a title
_SIZES = 8.0, 80.0  # the same, in squared points of the paper


def plot(
    shown: Any,
    labels: ArrayLike | None = None,
    *,
    spread: Any = None,
    by: Literal["opacity", "size"] = "opacity",
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw an embedding as points, and return the axes.

    An audit has its verdict as the title, and the 50 and 90 % regions of the mean place of some points, from those that
    move least to those that move most. Its points are opaque by their stability, or where they are beyond chance.

    Parameters
    ----------
    shown
        A posterior, a draw, an embedding, a summary or an audit, of this process or of a service; or coordinates
        (n, p), of which the first two are drawn.
    labels
        Color of each point: numbers by a color map, words and integers of at most 10 classes by a legend.
    spread
        How far each point moves (n,), or an object with a `spread`, such as a summary; by default that of `shown`, if
        it has one. Points of large spread are faint, or large.
    by
        Whether the spread is the opacity or the size of a point.
    ax
        Axes to draw on; None for those of a new figure.
    options
        Options of `matplotlib.axes.Axes.scatter`.

    Raises
    ------
    ImportError
        Without matplotlib.
    ValueError
        If labels or spread do not have one value for each point, or there are no coordinates to draw.

    """
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415 # optional
    except ImportError as error:
        raise ImportError("glle.plot needs matplotlib: pip install matplotlib.") from error
    places, verdict = coordinates(shown), getattr(shown, "verdict", None)
    x, y = places[:, 0], places[:, 1] if places.shape[1] > 1 else np.zeros(len(places))
    styles: dict[str, Any] = {}
    if (shares := None if spread is not None or verdict is None else _share_of_support(shown)) is not None:
        styles["alpha"] = np.interp(shares, (0, 1), _OPACITIES[::-1])
    elif (distances := _spread_of(shown if spread is None else spread, is_required=spread is not None)) is not None:
        _require_rows("spread", distances, len(places))
        relative = (distances - distances.min()) / (np.ptp(distances) or 1.0)
        name, limits = ("alpha", _OPACITIES) if by == "opacity" else ("s", _SIZES)
        styles[name] = np.interp(relative, (0, 1), limits)
    ax = plt.figure().gca() if ax is None else ax
    classes = np.zeros(len(places), int) if labels is None else np.asarray(labels)
    _require_rows("labels", classes, len(places))
    names = np.unique(classes)
    if classes.dtype.kind == "f" or len(names) > _MAX_LEGEND:
        values = classes if classes.dtype.kind in "fiub" else np.searchsorted(names, classes)
        ax.scatter(x, y, **{"c": values, **styles, **options})
    else:
        for name in names:
            rows = classes == name
            ax.scatter(x[rows], y[rows], label=name, **{key: value[rows] for key, value in styles.items()}, **options)
        if labels is not None:
            legend: Any = ax.legend()
            for handle in legend.legend_handles:
                handle.set_alpha([1.0])  # an array, as that of the points
    ax.set_aspect("equal", adjustable="datalim")
    if verdict is not None:
        ax.set_title("\n".join(wrap(verdict, _TITLE)), fontsize="small")
        _draw_regions(shown, places, ax)
    return ax


def _share_of_support(audit: Any) -> NDArray[np.float64] | None:
    """Return the share of support (n,) of each point of an audit: its stability, else whether it is beyond chance."""
    shares = getattr(audit, "stability", None)
    shares = getattr(audit, "is_point_beyond", None) if shares is None else shares
    return None if shares is None else np.asarray(shares, np.float64)


def _draw_regions(audit: Any, places: NDArray[np.float64], ax: Axes) -> None:
    """Draw the regions of some points of an audit, of this process or of a service."""
    from matplotlib.patches import Ellipse  # noqa: PLC0415 # optional

    region = audit.regions.get("mean")
    if region is None or places.shape[1] != 2:
        return
    radii = region["radii"] if isinstance(region, dict) else region.radii
    half_axes = audit.half_axes if isinstance(region, dict) else region.half_axes
    lengths = np.linalg.norm(half_axes, axis=2)
    rows = np.argsort(lengths[:, 0])[np.linspace(0, len(places) - 1, _REGIONS).astype(int)]
    for row, radius in ((row, radius) for row in rows for radius in radii):
        angle = np.degrees(np.arctan2(half_axes[row, 0, 1], half_axes[row, 0, 0]))
        width, height = 2 * radius * lengths[row]
        ax.add_patch(Ellipse(places[row], width, height, angle=angle, fill=False, lw=0.5, ec="0.6"))


def coordinates(shown: Any) -> NDArray[np.float64]:
    """Return the coordinates (n, p) of an object that has an embedding, or of an array; raise ValueError without."""
    named = (getattr(shown, name, None) for name in ("embedding", "consensus", "Y", "embedding_"))
    found = next((value for value in named if value is not None), shown)
    if found is shown and callable(getattr(shown, "arrays", None)):  # the posterior of a `Client`
        found = shown.arrays()["embedding"]
    places = np.asarray(found)
    if places.ndim != 2 or not places.shape[1] or places.dtype.kind not in "fiub":
        raise ValueError(f"{type(shown).__name__} has no coordinates: give an array (n, p), or an object with one.")
    return places.astype(np.float64)


def _spread_of(source: Any, *, is_required: bool) -> NDArray[np.float64] | None:
    """Return the spread (n,) of an object, or of an array if it is required; None without one."""
    found = getattr(source, "spread", None)
    if found is None or callable(found):
        found = source if is_required else None
    return None if found is None else np.asarray(found, np.float64)


def _require_rows(name: str, values: NDArray[Any], rows: int) -> None:
    if values.shape != (rows,):
        raise ValueError(f"{name} has shape {values.shape}; there are {rows} points: give one value for each.")
