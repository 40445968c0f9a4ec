"""Pictures of embeddings with matplotlib: axes for notebooks, and PNG bytes.

The same arrays give the same bytes. `picture` uses no current figure of pyplot.
"""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.base.arrays import array_of
from glle_engine.base.errors import InvalidShapeError
from glle_engine.base.parameters import check_choice
from glle_engine.base.pictures.colors import MAX_SHOWN_NAMES, PointColors, shorten
from glle_engine.base.pictures.points import PointTable, align_rows, require_finite_places, require_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

_OPACITY_RANGE = 0.12, 1.0  # opacities of the least certain and of the most certain point
_SIZE_RANGE = 0.5, 6.0  # areas of the points of smallest and largest spread, relative to the usual area
_MIN_REGIONS, _MAX_REGIONS = 3, 8  # an ellipse is drawn around this many points, fewer if the ellipses are large
# Reference width of a panel, for which the area of points was chosen: in wider panels, points are larger in proportion.
_PANEL_INCHES = 3.2
_LETTERS, _SMALL_LETTERS = 17, 15  # letters per inch in a title, and in the text below
_PICTURE_INCHES = 5.2  # width of a notebook's picture; the axes that `plot` creates are about as wide
_NARROW, _LETTERS_OF_NARROW = 4.0, 21  # panels of less than 4 inches have smaller letters: 21 per inch
_MAX_VECTOR_POINTS = 5000  # with more points, a file of vector graphics has the points as a bitmap
# Options of matplotlib that are left out if the caller passes a color.
_COLOR_OPTIONS = {"c", "cmap", "vmin", "vmax", "plotnonfinite"}
_OUTLYING_SHARE = 0.002  # share of the points at each end that may lie outside of a panel


LEVELS = {
    "trust": "✔ Trust this map",
    "partly": "◐ Trust parts of this map",
    "no": "✘ Do not trust this map",
    "unknown": "? Not known",
}
LEVEL_COLORS = {"✔": "#1a7f37", "◐": "#9a6700", "✘": "#cf222e", "?": "#59636e"}
# Color of the marks at tears and folds, and color of points that belong to no island.
TEAR, OUTSIDE = "#cf222e", "#afb8c1"
_MAX_FOLDED_SHARE = 0.5  # if a larger share of the points is folded, the fault is not local, and no point is marked
_BESIDE = np.array(
    sorted(((x / 2, y / 2) for x in range(-3, 4) for y in range(-6, 7)), key=lambda xy: 9 * xy[0] ** 2 + xy[1] ** 2)
)  # positions to try for a name, relative to the middle of its group, in units of the name's box, nearest first
_MAX_NAME_OVERHANG = 0.08  # share of the width of a panel that a name may extend beyond it
# If there are at most this many groups, each group's name is followed by the number of groups from which it stays
# apart, such as "a: 4/5". The names of more groups are written alone and smaller.
_MAX_COUNTED_GROUPS = 10
_MIN_OUTLINE_POINTS = 3  # an island with fewer points has no outline
BACKGROUND, TEXT, FRAME = "#ffffff", "#1f2328", "#d0d7de"


@dataclass(frozen=True, eq=False)
class Panel:
    """One scatter plot of points Y (n, p): two components, or a single one against its rank."""

    title: str
    Y: NDArray[Any]
    colors: PointColors
    below: str = ""  # text below the plot
    opacities: NDArray[np.float64] | None = None  # (n,)
    sizes: NDArray[np.float64] | None = None  # (n,), relative to the usual area
    # (n, 2, 2), covariance of each point's position, from which the ellipses around some points are drawn.
    covariance: NDArray[np.float64] | None = None
    # By coverage: radius of the ellipses, in standard deviations.
    radii: dict[float, float] = field(default_factory=dict)
    apart_from: dict[str, int] = field(default_factory=dict)  # by group: from how many others it stays apart
    # By an island's index in `of_islands`: its name, and whether the audit trusts it.
    islands: dict[int, tuple[str, bool]] = field(default_factory=dict)
    of_islands: NDArray[np.int64] | None = None  # (n,), index of each point's island, or -1
    tears: NDArray[np.int64] | None = None  # (t, 2), pairs of neighbors that the map tears apart
    is_folded: NDArray[np.bool_] | None = None  # (n,), whether the map lays the point onto points far away in the data

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Whether each point (n,) is in no island of an audit; False for other results."""
        return np.zeros(len(self.Y), bool) if self.of_islands is None else self.of_islands < 0

    @property
    def has_folds(self) -> bool:
        """Whether the map lays some points, but not most, onto points that are far away in the data."""
        return self.is_folded is not None and bool(0 < self.is_folded.mean() <= _MAX_FOLDED_SHARE)

    @classmethod
    def from_result(cls, shown: Any) -> Panel:
        """Return the panel that shows a result.

        The opacity of a point shows its stability. If the result has none, the opacity shows whether the point keeps
        more neighbors than chance, or else its spread.
        """
        points = PointTable.from_result(shown)
        if not len(points.places):
            raise InvalidShapeError("There are no points to draw.", remedy="Give at least one point.")
        require_finite_places(points.places)
        n, are_groups = len(points.places), bool(points.apart_from)
        colors = PointColors("", np.zeros(n), ("",))
        if points.labels is not None:
            colors = PointColors.from_labels(points.labels, n, points.label, are_groups=are_groups)
        columns = points.columns
        shares = columns.get("neighborhood", columns.get("stability", columns.get("is_point_beyond")))
        if shares is None and "spread" in columns:
            shares = 1 - _relative(columns["spread"])
        opacities = None if shares is None else np.interp(shares, (0, 1), _OPACITY_RANGE)
        groups = {name: count for name, count in points.apart_from.items() if name in (colors.classes or colors.names)}
        title = f"{LEVELS[points.level]}\n{points.reads}" if points.level else points.verdict
        panel = cls(title, points.places, colors, opacities=opacities, apart_from=groups)
        if points.level:
            panel = replace(
                panel, islands=points.islands, of_islands=columns.get("island"), tears=points.tears,
                is_folded=columns.get("is_glued"),
            )  # fmt: skip
        elif points.covariance is not None:
            panel = replace(panel, covariance=points.covariance, radii=points.radii)
        return replace(panel, below="; ".join(panel.explain_marks(points)))

    def explain_marks(self, points: PointTable) -> Iterator[str]:
        """Yield a phrase for each kind of mark in the panel, such as "red lines: torn neighbors"."""
        is_sampled = "neighborhood" in points.columns
        if is_sampled or points.covariance is not None:
            yield "faint: neighbors change"
        if self.islands:
            yield "solid outline: island to trust; dashed: not" if is_sampled else "outlines: islands"
        if self.outside.any():
            yield "gray: clumps too small to judge"
        if self.tears is not None and len(self.tears):
            yield "red lines: torn neighbors"
        if self.has_folds:
            yield "red rings: laid onto others"
        if self.radii:
            yield f"ellipses: {' and '.join(f'{level:.0%}' for level in self.radii)} regions of some points"
        if 0 < len(self.apart_from) <= _MAX_COUNTED_GROUPS:
            yield "numbers: from how many of the others a group stays apart"


def plot(
    shown: Any,
    labels: ArrayLike | None = None,
    *,
    spread: Any = None,
    by: Literal["opacity", "size"] = "opacity",
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw an embedding as points with what is known of their certainty, and return the axes.

    The title of an audit is its level and what to read from the map and what not; other titles say how far draws agree.
    The more of a point's neighbors stay its neighbors in other draws or samples, the more opaque the point is. An audit
    is drawn with outlines around its islands (solid around the islands to trust), lines across tears and rings around
    folded points. Other results are drawn with the 50 and 90 % regions of some points. A posterior is drawn as the mean
    of 40 draws, or of fewer draws if it has more than 10,000 points; to see its embedding alone, give
    ``posterior.embedding``.

    Parameters
    ----------
    shown
        A posterior, a draw, an embedding, a summary, an ensemble or an audit, of this process or of a service; an
        estimator; or coordinates (n, p), of which the first two are drawn.
    labels
        Color of each point: words and few integers are classes with a legend, other numbers a scale. By default the
        labels of the table that a posterior was fitted to.
    spread
        How far each point moves between draws, (n,), or an object with a `spread`, such as a summary. It replaces the
        certainty of `shown`: points of large spread are faint, or large (`by`).
    by
        Whether the spread determines the opacity or the size of a point.
    ax
        Axes to draw on; None for the axes of a new figure.
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
        import matplotlib as mpl  # noqa: PLC0415 # optional
        from matplotlib import pyplot as plt  # noqa: PLC0415 # optional
    except ImportError as error:
        raise ImportError("glle.plot needs matplotlib: pip install matplotlib.") from error
    check_choice("by", by, ("opacity", "size"))
    points = PointTable.from_result(shown)
    if labels is not None:
        points = replace(points, label="", labels=align_rows(labels, points.index, "the labels"))
    panel = Panel.from_result(points)
    distances = points.columns.get("spread")
    if spread is not None:
        distances = array_of(getattr(spread, "spread", spread), "the spread")
    if distances is not None and (spread is not None or by == "size"):
        require_rows("spread", distances, len(points.places))
        if distances.dtype.kind not in "fiub" or not np.isfinite(distances).all():
            raise InvalidShapeError(
                "`spread` has values that are not finite numbers.",
                remedy="Give one finite number for each point, or leave the points without one out of the plot.",
            )
        relative = _relative(distances.astype(np.float64))
        is_size = by == "size"
        sizes = np.interp(relative, (0, 1), _SIZE_RANGE) if is_size else None
        opacities = None if is_size else np.interp(1 - relative, (0, 1), _OPACITY_RANGE)
        panel = replace(panel, sizes=sizes, opacities=opacities)
    with mpl.rc_context({"text.parse_math": False}):
        width = _own_width(ax)
        ax = plt.figure(figsize=(6.4, 5.6), layout="constrained").gca() if ax is None else ax
        drawn = draw(ax, panel, inches=width, **options)
        has_names = bool(panel.colors.names and panel.apart_from)  # names are written on the picture
        if points.labels is not None and not panel.colors.classes and not has_names:
            _draw_scale(ax, panel.colors, drawn)
        if points.labels is not None and (panel.colors.classes or panel.colors.missing):
            engine = getattr(ax.get_figure(root=True), "get_layout_engine", lambda: None)()
            # Only the constrained layout makes room for a legend outside of the axes.
            has_room = engine is not None and engine.adjust_compatible is False
            place: Any = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if has_room else {"loc": "upper right"}
            # Otherwise there is a color scale to the right of the axes, and the legend goes into the axes.
            place = place if panel.colors.classes or has_names else {"loc": "upper right"}
            handles = panel.colors.handles() if panel.colors.classes else panel.colors.handles()[-1:]
            ax.legend(handles=handles, title=shorten([panel.colors.title])[0], fontsize=8, **place)
    return ax


def _draw_scale(axes: Axes, colors: PointColors, drawn: Any) -> None:
    """Draw a bar with the scale of numbers or dates, or with some names of classes in sorted order."""
    from matplotlib import dates  # noqa: PLC0415 # optional

    scale: dict[str, Any] = {}
    if colors.is_time:
        locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
        scale = {"ticks": locator, "format": dates.AutoDateFormatter(locator)}  # type: ignore[no-untyped-call]
    bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.8, pad=0.02, label=colors.title, **scale)
    if colors.names:
        shown, names = colors.some_names(), colors.short_names()
        bar.set_ticks(shown, labels=[names[code] for code in shown], fontsize=6 if len(shown) == MAX_SHOWN_NAMES else 7)


def _own_width(ax: Axes | None) -> float:
    """Return the width of the axes in inches, and switch their figure to a layout that makes room for titles and texts.

    A figure that has a layout keeps it. Without axes, return about the width of the axes that `plot` then creates.
    """
    if ax is None:
        return _PICTURE_INCHES
    figure = ax.get_figure(root=True)
    if figure is None:
        return _PICTURE_INCHES
    width = float(ax.get_position().width * figure.get_size_inches()[0])
    if figure.get_layout_engine() is None:
        with suppress(RuntimeError):  # matplotlib refuses this for a figure with a colorbar, which keeps its layout
            figure.set_layout_engine("constrained")
    return width


def picture(shown: Any) -> bytes:
    """Return the picture of a result as a PNG for a notebook, 1,040 pixels wide and as high as its legend needs."""
    import matplotlib as mpl  # noqa: PLC0415 # optional
    from matplotlib.figure import Figure  # noqa: PLC0415 # optional

    panel = Panel.from_result(shown)
    handles = panel.colors.handles()
    width_of_name = 0.25 + 0.06 * max((len(handle.get_label()) for handle in handles), default=0)
    across = int(np.clip(_PICTURE_INCHES / width_of_name, 1, min(10, len(handles) or 1)))
    foot = 0.2 + 0.15 * -(-len(handles) // across) if handles else 0.0
    with mpl.rc_context({"text.parse_math": False}):
        size = (_PICTURE_INCHES, _PICTURE_INCHES + 0.35 + foot)
        figure = Figure(figsize=size, facecolor=BACKGROUND, layout="constrained")
        draw(figure.add_subplot(), panel, inches=_PICTURE_INCHES)
        if handles:
            figure.legend(
                handles=handles, loc="outside lower center", ncols=across, fontsize=7, frameon=False,
                labelcolor=TEXT, handletextpad=0.1, columnspacing=1.0,
            )  # fmt: skip
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
    return buffer.getvalue()


def draw(axes: Axes, panel: Panel, *, inches: float, **options: Any) -> Any:
    """Draw a panel on axes, and return the collection of points; `options` of `Axes.scatter` override the panel's."""
    points = _planar(panel.Y)
    n = len(points)
    axes.set_facecolor(BACKGROUND)
    size, letters = (9, _LETTERS) if inches >= _NARROW else (6.5, _LETTERS_OF_NARROW)
    title = panel.title.splitlines()
    head = "\n".join(wrapped for line in title for wrapped in wrap(line, int(letters * inches)))
    color = LEVEL_COLORS.get(head[:1], TEXT)
    axes.set_title(head, fontsize=size, color=color, pad=4)
    p = panel.Y.shape[1]
    lines = panel.below.splitlines() + ([f"components 1 and 2 of {p}"] if p > 2 else [])
    below = [wrapped for line in lines for wrapped in wrap(line, int(_SMALL_LETTERS * inches))]
    axes.set_xlabel("\n".join(below), fontsize=min(size, 7.5), color=TEXT)
    for edge in axes.spines.values():
        edge.set_color(FRAME)
    axes.set_xticks([])
    axes.set_yticks([])
    area = float(np.clip(9000 / n, 0.6, 14.0)) * (inches / _PANEL_INCHES) ** 2
    drawn: dict[str, Any] = {
        "s": area if panel.sizes is None else area * panel.sizes,
        "alpha": panel.opacities,
        "linewidths": 0,
        "rasterized": n > _MAX_VECTOR_POINTS,
        **panel.colors.arguments(),
    }
    if "c" in options or "color" in options:
        drawn = {name: value for name, value in drawn.items() if name not in _COLOR_OPTIONS}
    scatter = axes.scatter(*points.T, **{**drawn, **options})
    _draw_islands(axes, panel, points, {**drawn, **options}["s"])
    reach = np.zeros_like(points) if panel.covariance is None else _draw_regions(axes, panel, area)
    _fit_view(axes, points, reach, is_flat=panel.Y.shape[1] > 1)
    _write_groups(axes, panel, points, inches)
    return scatter


def _draw_islands(axes: Axes, panel: Panel, points: NDArray[Any], sizes: Any) -> None:
    """Draw outlines around islands, lines across tears, and rings around folded points.

    An outline is solid if the audit trusts the island, and dashed otherwise. Points of no island become gray; `sizes`
    is the area of all points, or the area (n,) of each.
    """
    from matplotlib.collections import LineCollection  # noqa: PLC0415 # optional
    from matplotlib.patches import Polygon  # noqa: PLC0415 # optional

    if panel.of_islands is not None and panel.Y.shape[1] > 1:
        for island, (name, stays) in panel.islands.items():
            members = points[panel.of_islands == island]
            outline = _outline(members)
            if outline is None:
                continue
            axes.add_patch(
                Polygon(
                    outline, closed=True, fill=False, edgecolor=TEXT, linewidth=1.2 if stays else 0.8,
                    linestyle="-" if stays else "--", alpha=0.8, zorder=2,
                )
            )  # fmt: skip
            if not panel.apart_from:
                top = outline[outline[:, 1].argmax()]
                axes.annotate(name, top, xytext=(0, 1), textcoords="offset points", fontsize=7, color=TEXT, ha="center")
    if (outside := panel.outside).any():
        x, y = points[outside].T
        axes.scatter(x, y, s=sizes if np.isscalar(sizes) else sizes[outside], c=OUTSIDE, linewidths=0)
    if panel.tears is not None and len(panel.tears):
        axes.add_collection(LineCollection(list(points[panel.tears]), colors=TEAR, linewidths=0.5, alpha=0.6, zorder=2))
    if panel.is_folded is not None and panel.has_folds:
        x, y = points[panel.is_folded].T
        axes.scatter(x, y, s=14, facecolors="none", edgecolors=TEAR, linewidths=0.6, zorder=3)


def _outline(members: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return the convex hull (m, 2) of points, enlarged by 6 %; None for fewer than 3 points, or points on a line."""
    from scipy.spatial import ConvexHull, QhullError  # noqa: PLC0415 # only for audits

    if len(members) < _MIN_OUTLINE_POINTS:
        return None
    try:
        corners = members[ConvexHull(members).vertices]
    except QhullError:
        return None
    middle = corners.mean(axis=0)
    return np.asarray(middle + 1.06 * (corners - middle), np.float64)


def _write_groups(axes: Axes, panel: Panel, points: NDArray[Any], inches: float) -> None:
    """Write each group's name on the middle of its points, or beside the middle if another name is already there."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415 # optional

    names, is_counted = panel.colors.classes or panel.colors.names, len(panel.apart_from) <= _MAX_COUNTED_GROUPS
    size = 8.0 if is_counted else 5.5
    effects = [withStroke(linewidth=2.5 if is_counted else 1.5, foreground=BACKGROUND)]
    (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    unit = np.array([high - low, top - bottom]) / (72 * inches)  # a typographic point in units of the axes
    taken, overflow = np.empty((0, 4)), _MAX_NAME_OVERHANG * (high - low)
    for name, count in panel.apart_from.items():
        short = panel.colors.short_names()[names.index(name)]
        text = f"{short}: {count}/{len(panel.apart_from) - 1}" if is_counted else short
        half = np.array([0.35 * size * len(text), 0.7 * size]) * unit
        middle = np.median(points[panel.colors.values == names.index(name)], axis=0)
        places = middle + 2 * half * _BESIDE
        boxes = np.concatenate([places - half, places + half], axis=1)
        is_free = [
            not ((box[:2] < taken[:, 2:]) & (taken[:, :2] < box[2:])).all(axis=1).any()
            and low - overflow <= box[0] <= box[2] <= high + overflow
            for box in boxes
        ]
        corner = int(np.argmax(is_free))
        taken = np.concatenate([taken, boxes[corner : corner + 1]])
        x, y = places[corner]
        axes.text(x, y, text, fontsize=size, color=TEXT, path_effects=effects, ha="center", va="center", zorder=4)


def _draw_regions(axes: Axes, panel: Panel, area: float) -> NDArray[np.float64]:
    """Draw ellipses around some points, which show how uncertain their positions are (`Panel.covariance`).

    Returns half the width and half the height (n, 2) of each point's largest ellipse; 0 for points without an ellipse.
    `area` is the usual area of a point in matplotlib's unit.
    """
    from matplotlib.patches import Ellipse  # noqa: PLC0415 # optional

    assert panel.covariance is not None
    colors = panel.colors.arguments()
    reach = np.zeros((len(panel.Y), 2))
    sizes = np.trace(panel.covariance, axis1=1, axis2=2)
    # If the ellipses are large, only few are drawn, because many of them would hide the points.
    count = int(_MAX_REGIONS * panel.Y.var(axis=0).sum() / (np.median(sizes) * max(panel.radii.values()) ** 2 or 1.0))
    rows = _apart(panel.Y, sizes, int(np.clip(count, _MIN_REGIONS, _MAX_REGIONS)))
    for row in rows:
        values, vectors = np.linalg.eigh(panel.covariance[row])
        lengths = np.sqrt(np.maximum(values, 0))
        angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
        color = colors["cmap"]((panel.colors.values[row] - colors["vmin"]) / (colors["vmax"] - colors["vmin"]))
        for radius in panel.radii.values():
            width, height = 2 * radius * lengths[::-1]
            shape = {"angle": angle, "facecolor": (*color[:3], 0.1), "edgecolor": (*color[:3], 0.8), "linewidth": 0.8}
            axes.add_patch(Ellipse(panel.Y[row], width, height, **shape))
        reach[row] = max(panel.radii.values()) * np.sqrt(np.diag(panel.covariance[row]))
    edge = {"edgecolors": TEXT, "linewidths": 0.8, "s": 2 * area, "zorder": 3}
    axes.scatter(*panel.Y[rows].T, **{**colors, "c": panel.colors.values[rows], **edge})
    return reach


def _apart(Y: NDArray[Any], sizes: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Choose `count` points of Y (n, p) around which ellipses are drawn, and return their rows.

    `sizes` (n,) measure the ellipses. The points are sorted by this size and cut into `count` groups, from small to
    large. One point is chosen from each group: first the point of the smallest ellipse, then always the point that is
    farthest in Y from the points chosen before.
    """
    groups = np.array_split(np.argsort(sizes, kind="stable"), min(count, len(Y)))
    rows = [int(groups[0][0])]
    for group in groups[1:]:
        distances = np.linalg.norm(Y[group][:, None] - Y[rows], axis=2).min(axis=1)
        rows.append(int(group[np.argmax(distances)]))
    return np.array(rows)


def _fit_view(axes: Axes, points: NDArray[Any], reach: NDArray[np.float64], *, is_flat: bool) -> None:
    """Set the limits of the axes so that all points and the ellipses around them are visible, except outliers.

    Outliers would shrink the other points to a dot; their number is written in a corner. `reach` (n, 2) is half the
    width and half the height of each point's ellipse, or 0 without an ellipse. If both axes are coordinates
    (`is_flat`), the view is a square with equal scales.
    """
    low, high = np.quantile(points, [_OUTLYING_SHARE, 1 - _OUTLYING_SHARE], axis=0)
    margin = 0.08 * (high - low) + 1e-9 * (1 + np.abs(high))
    is_outside = ((points < low - 3 * margin) | (points > high + 3 * margin)).any(axis=1)
    max_margin = (high - low).max() / 2  # ellipses widen the view by at most this on each side; larger ones are cut off
    inside, around = points[~is_outside], reach[~is_outside]
    low = np.minimum(inside.min(axis=0), np.maximum((inside - around).min(axis=0), low - max_margin)) - margin / 2
    high = np.maximum(inside.max(axis=0), np.minimum((inside + around).max(axis=0), high + max_margin)) + margin / 2
    if is_flat:
        middle, half = (low + high) / 2, (high - low).max() / 2
        low, high = middle - half, middle + half
        axes.set_aspect("equal", adjustable="box")
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    if outside := int(is_outside.sum()):
        label = f"{outside} points outside" if outside > 1 else "1 point outside"
        axes.text(0.98, 0.02, label, transform=axes.transAxes, fontsize=6, ha="right", color=TEXT)


def _planar(Y: NDArray[Any]) -> NDArray[Any]:
    """Return positions (n, 2) in the picture: the first two components, or a single component and its rank."""
    if Y.shape[1] > 1:
        return np.asarray(Y[:, :2])
    rank = np.empty(len(Y))
    rank[np.argsort(Y[:, 0], kind="stable")] = np.arange(len(Y))
    return np.stack([Y[:, 0], rank], axis=1)


def _relative(values: NDArray[Any]) -> NDArray[np.float64]:
    """Rescale values so that the smallest is 0 and the largest is 1."""
    return np.asarray((values - values.min()) / (np.ptp(values) or 1.0))
