"""Pictures from arrays: reproducible bytes, sizes."""

import struct
from typing import Any

import numpy as np
import pytest

from glle_engine.base.pictures.plotting import CLASSES, Panel, PointColors, plot, render

RNG = np.random.default_rng(0)
Y = RNG.standard_normal((60, 2))
BY_PLACE = PointColors("place", Y[:, 0])


def size(png: bytes) -> tuple[int, int]:
    """Return width and height from the header of a PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_png_has_the_requested_width() -> None:
    """The height follows from the number of rows; panels have any number of components, and outliers."""
    far = np.concatenate([RNG.standard_normal((500, 3)), [[1e6, 1e6, 0]]])
    panels = [Panel("a", points, PointColors("place", points[:, 0])) for points in (Y, Y[:, :1], far, Y)]
    one_row, two_rows = (size(render(panels, columns=columns, width=300, inches=3.2)) for columns in (4, 2))
    assert one_row[0] == two_rows[0] == 300
    assert one_row[1] < 300 < two_rows[1] * 1.1


def test_the_same_arrays_are_the_same_bytes() -> None:
    """Equal content gives equal bytes; titles are not parsed as mathematics."""
    panels = [Panel("$\\frac{1$", Y, BY_PLACE, "below"), Panel("b", Y[:, :1], BY_PLACE)]
    first, again, other = (render(shown, columns=2, width=300, inches=3.2) for shown in (panels, panels, panels[::-1]))
    assert first == again != other


@pytest.mark.parametrize(
    ("raw", "classes"),
    [
        (np.array(["b", "a", "b"]), ("a", "b")),
        (np.array([3.0, 1.0, 1.0]), ("1", "3")),
        (np.array([0.5, 1.0, 2.0]), ()),
        (np.arange(40.0), ()),
        (np.array([f"c{i}" for i in range(40)]), ()),
    ],
)
def test_few_integers_and_texts_are_classes(raw: Any, classes: tuple[str, ...]) -> None:
    """Other numbers, and many sorted texts, are values of a color scale."""
    colors = PointColors.from_values("x", raw)
    assert colors.classes == classes
    assert len(colors.values) == len(raw)


def test_long_names_and_dates_fit_the_figure() -> None:
    """Names in a legend are cut, and its rows as many as the figure has room for; dates are on a scale of dates."""
    points = RNG.standard_normal((60, 3))
    names = np.array([f"{i} " + "long name " * 9 for i in range(6)])[np.arange(60) % 6]
    axes = plot(points, names)
    axes.figure.canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    assert box.x1 <= axes.figure.bbox.x1
    assert axes.get_window_extent().width > box.width
    assert axes.get_xlabel() == "components 1 and 2 of 3"
    long, short = (Panel("a", points, PointColors.from_values("", each)) for each in (names, names.astype("U1")))
    sizes = [size(render([panel], columns=1, width=320, inches=3.2)) for panel in (long, short)]
    assert sizes[0][1] > sizes[1][1]
    days = np.datetime64("2024-01-01") + np.arange(60)
    axes = plot(points, days)
    axes.figure.canvas.draw()
    assert axes.figure.axes[1].get_yticklabels()[0].get_text().startswith("2024-01")


@pytest.mark.parametrize("count", [1, len(CLASSES), 20])
def test_each_class_has_a_distinct_color(count: int) -> None:
    """The number of colors equals the number of classes."""
    shades = PointColors.from_values("x", np.arange(float(count))).arguments()["cmap"]
    assert len({tuple(shades(i)) for i in range(count)}) == count
