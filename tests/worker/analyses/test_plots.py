"""Pictures from arrays: formats, reproducible bytes, sizes."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from worker.analyses.plots.figure import Panel, render
from worker.analyses.plots.palette import CLASSES, PointColors

RNG = np.random.default_rng(0)
Y = RNG.standard_normal((60, 2))
BY_PLACE = PointColors("place", Y[:, 0])


def size(png: bytes) -> tuple[int, int]:
    """Return width and height from the header of a PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_png_has_the_requested_width() -> None:
    """The height follows from the number of rows."""
    width = 300
    one_row = size(render([Panel("a", Y, BY_PLACE)] * 4, columns=4, width=width))
    two_rows = size(render([Panel("a", Y, BY_PLACE)] * 4, columns=2, width=width))
    assert one_row[0] == two_rows[0] == width
    assert one_row[1] < width < two_rows[1] * 1.1


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
    """Few points are vectors, many points a bitmap."""
    few, many = (
        render([Panel("a", RNG.standard_normal((n, 2)), PointColors("n", np.arange(n)))], columns=1, format_="svg")
        for n in (100, 6000)
    )
    for svg in (few, many):
        assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314 # bytes of this test
    assert b"data:image/png" not in few
    assert b"data:image/png" in many
    assert len(many) < 1_000_000


@pytest.mark.parametrize("p", [1, 3])
def test_any_number_of_components_is_drawn(p: int) -> None:
    """One component is plotted against its rank; of three, the first two are plotted."""
    assert size(render([Panel("a", RNG.standard_normal((60, p)), BY_PLACE)], columns=1))[0] == 1200


def test_hostile_titles_are_text() -> None:
    """Names of data and methods are not parsed as mathematics or markup."""
    result = render([Panel("$\\frac{1$ <script>", Y, BY_PLACE)], columns=1, title="a & b", format_="svg")
    assert ET.fromstring(result) is not None  # noqa: S314 # bytes of this test
    assert b"<script>" not in result


def test_far_points_do_not_shrink_the_others() -> None:
    """An outlier is reported as outside, and does not shrink the others."""
    far = np.concatenate([RNG.standard_normal((2000, 2)), [[1e6, 1e6]]])
    colours = PointColors("n", np.arange(2001))
    with_far = render([Panel("a", far, colours)], columns=1, width=400)
    without = render([Panel("a", far[:-1], PointColors("n", np.arange(2000)))], columns=1, width=400)
    assert abs(len(with_far) - len(without)) < 0.3 * len(without)  # equal positions would compress to almost nothing


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


@pytest.mark.parametrize("count", [1, len(CLASSES), len(CLASSES) + 3, 20])
def test_each_class_has_a_distinct_color(count: int) -> None:
    """The number of colors equals the number of classes."""
    shades = PointColors.of("x", np.arange(float(count))).arguments("light")["cmap"]
    assert len({tuple(shades(i)) for i in range(count)}) == count
