"""Pictures from arrays: formats, reproducible bytes, sizes."""

import io
import struct
import xml.etree.ElementTree as ET
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

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
    one_row, two_rows = (size(render(panels, columns=columns, width=300)) for columns in (4, 2))
    assert one_row[0] == two_rows[0] == 300
    assert one_row[1] < 300 < two_rows[1] * 1.1
    assert size(render(panels[:1], columns=1))[0] == 1200


@pytest.mark.parametrize("format_", ["png", "svg"])
def test_the_same_arrays_are_the_same_bytes(format_: Any) -> None:
    """Equal content gives equal bytes."""
    panels = [Panel("a", Y, BY_PLACE, "below", has_colorbar=True), Panel("b", Y[:, :1], BY_PLACE)]
    first, again, dark = (
        render(panels, columns=2, title="both", width=300, format_=format_, theme=theme)
        for theme in ("light", "light", "dark")
    )
    assert first == again != dark


def test_an_svg_of_many_points_contains_a_bitmap() -> None:
    """Few points are vectors, many points a bitmap; titles are not parsed as mathematics or markup."""
    few, many = (
        render(
            [Panel("$\\frac{1$ <script>", places, PointColors("n", places[:, 0]))],
            columns=1,
            title="a & b",
            format_="svg",
        )
        for places in (Y, RNG.standard_normal((6000, 2)))
    )
    for svg in (few, many):
        assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314 # bytes of this test
        assert b"<script>" not in svg
    assert b"data:image/png" not in few
    assert b"data:image/png" in many
    assert len(many) < 1_000_000


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
    colors = PointColors.of("x", raw)
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
    lines = size(render([Panel("a", points, PointColors.of("", names))], columns=1, width=320))
    assert (
        lines[1] > size(render([Panel("a", points, PointColors.of("", names.astype("U1")))], columns=1, width=320))[1]
    )
    days = np.datetime64("2024-01-01") + np.arange(60)
    axes = plot(points, days)
    axes.figure.canvas.draw()
    assert axes.figure.axes[1].get_yticklabels()[0].get_text().startswith("2024-01")


@pytest.mark.parametrize("format_", ["png", "svg"])
@pytest.mark.parametrize(("count", "columns"), [(1, 1), (7, 4), (65, 8)])
def test_the_smallest_picture_has_letters(format_: Literal["png", "svg"], count: int, columns: int) -> None:
    """Of any number of panels, with titles, scales and a legend."""
    points = RNG.standard_normal((60, 2))
    colors = PointColors.of("", np.array(["a", "b"] * 30))
    panels = [Panel(f"draw {at}", points, colors, "faint: neighbors change") for at in range(count)]
    assert render(panels, columns=columns, title="Draws", width=100, format_=format_)


def test_captions_fit_panels_beside_scales() -> None:
    """No text of a grid with color scales reaches the edge of the picture."""
    points, colors = RNG.standard_normal((60, 2)), PointColors.of("", np.arange(60.0))
    below = "faint: neighbors change; ellipses: 50% and 90% regions of some points"
    panels = [Panel("a", points, colors, below), *[Panel("b", points, colors, has_colorbar=True)] * 3]
    picture = np.asarray(Image.open(io.BytesIO(render(panels, columns=2))).convert("L"))
    assert (picture[:, :2] == 255).all()


@pytest.mark.parametrize("count", [1, len(CLASSES), 20])
def test_each_class_has_a_distinct_color(count: int) -> None:
    """The number of colors equals the number of classes."""
    shades = PointColors.of("x", np.arange(float(count))).arguments("light")["cmap"]
    assert len({tuple(shades(i)) for i in range(count)}) == count
