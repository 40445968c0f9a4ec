"""Widget for notebooks that shows points with jupyter-scatter, animates draws, and selects points with a lasso."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.pictures.colors import CLASSES, MAX_CLASS_COLORS, SEQUENCE
from glle_engine.base.pictures.plotting import Panel
from glle_engine.base.pictures.points import PointTable, align_rows, frame

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_PLAYED_DRAWS = 24
_MAX_POINTS_WITH_LARGE_DOTS = 5000  # up to this many points are drawn as larger dots
_OUTLYING_SHARE = 0.005  # share of the positions at each end that may lie outside of the first view
_INTERVAL, _MOVE = 900, 600  # milliseconds from one draw to the next, and of the movement between them


class PointWidget:
    """Widget that shows the points of a result in a notebook, if the widget is the last line of a cell.

    Attributes
    ----------
    scatter : jscatter.Scatter
        For all options of jupyter-scatter, such as ``widget.scatter.height(600)``.
    places : (1 + count, n, 2) float64
        Positions of the points: first their average, then their positions in each of `count` draws.

    """

    def __init__(self, points: PointTable, labels: NDArray[Any] | None, draws: NDArray[np.float64]) -> None:
        import ipywidgets  # noqa: PLC0415 # optional
        from jscatter import Scatter  # noqa: PLC0415 # optional

        self.places = np.concatenate([points.places[None, :, :2], draws[:, :, :2]])
        low, high = np.quantile(self.places, (_OUTLYING_SHARE, 1 - _OUTLYING_SHARE), axis=(0, 1))
        middle, half = (low + high) / 2, 0.55 * float((high - low).max())
        self._scales = {f"{axis}_scale": (middle[i] - half, middle[i] + half) for i, axis in enumerate("xy")}
        table = frame(points, labels)
        shown = [name for name in table if name not in {"y1", "y2"}]
        certain: dict[str, Any] = {}
        if (opacities := Panel.from_result(points).opacities) is not None:
            table["opacity"] = opacities
            certain = {"opacity_by": "opacity", "opacity_map": (0, 1, 256), "opacity_norm": (0, 1)}
        size = 3 if len(table) > _MAX_POINTS_WITH_LARGE_DOTS else 6
        colors: dict[str, Any] = {"color_default": CLASSES[0]}
        if labels is not None:
            is_number = labels.dtype.kind in "fc" or len(set(labels.tolist())) > MAX_CLASS_COLORS
            table["label"] = table["label"] if is_number else table["label"].astype(str).astype("category")
            several = len(set(labels.tolist())) > len(CLASSES)
            colors = {"color_by": "label", "color_map": SEQUENCE if is_number else "turbo" if several else [*CLASSES]}
        self.scatter = Scatter(
            x="y1", y="y2", data=table, height=480, legend=labels is not None, axes=False, tooltip=True,
            tooltip_properties=shown, tooltip_histograms=False, size=size,
            transition_points_duration=_MOVE, **self._scales, **colors, **certain,
        )  # fmt: skip
        parts = [ipywidgets.HTML(f"<b>{escape(points.verdict)}</b>"), self.scatter.show()]
        if len(draws):
            play = ipywidgets.Play(max=len(draws), interval=_INTERVAL, repeat=True)
            slider = ipywidgets.IntSlider(max=len(draws), readout=False)
            self._name = ipywidgets.Label("average")
            ipywidgets.jslink((play, "value"), (slider, "value"))
            slider.observe(lambda change: self.show_draw(change["new"] - 1), "value")
            parts.append(ipywidgets.HBox([play, slider, self._name]))
        self.box = ipywidgets.VBox(parts)

    @property
    def selection(self) -> NDArray[np.intp]:
        """Rows of the points within the lasso, in no particular order."""
        return np.asarray(self.scatter.selection(), np.intp)

    def show_draw(self, index: int) -> None:
        """Move the points to their positions in draw `index`, or to their average positions if `index` is -1."""
        x, y = self.places[index + 1].T
        self.scatter.xy(x=x, y=y, animate=True, **self._scales)
        self._name.value = "average" if index < 0 else f"draw {index}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.box._repr_mimebundle_(**options)  # IPython's protocol


def widget(shown: Any, labels: ArrayLike | None = None, *, draws: int | ArrayLike = _PLAYED_DRAWS) -> PointWidget:
    """Return a widget of points for a notebook, which animates a posterior's draws and selects points with a lasso.

    As in `glle.plot`, the more certain a point, the more opaque it is. A tooltip shows the values of a point.

    Parameters
    ----------
    shown
        Result as for `glle.plot`, with two or more coordinates.
    labels
        Color of each point: words and few integers are classes, other numbers a scale. By default the labels of the
        table that a posterior was fitted to.
    draws
        Number of draws of a posterior to animate, or embeddings (count, n, p). Other results have no animation.

    Raises
    ------
    ImportError
        Without jupyter-scatter.
    ValueError
        If there are fewer than two coordinates, or labels of another length.

    Examples
    --------
    >>> widget = glle.widget(posterior, labels)  # doctest: +SKIP
    >>> X[widget.selection]  # doctest: +SKIP

    """
    try:
        import jscatter  # noqa: F401, PLC0415 # optional
    except ImportError as error:
        raise ImportError("glle.widget needs jupyter-scatter: pip install 'glle[notebook]'.") from error
    points = PointTable.from_result(shown)
    if points.places.shape[1] < 2:
        raise ValueError("The result has one coordinate, but a widget needs two. Use glle.plot for this result.")
    point_labels = points.labels if labels is None else np.asarray(align_rows(labels, points.index, "the labels"))
    embeddings: Any = draws
    if isinstance(draws, int):
        drawn = shown.draws(draws) if callable(getattr(shown, "draws", None)) else []
        embeddings = [getattr(draw, "embedding", draw) for draw in drawn]
    return PointWidget(points, point_labels, np.asarray(embeddings, np.float64).reshape(-1, *points.places.shape))
