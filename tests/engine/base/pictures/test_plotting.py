"""Pictures from arrays: reproducible bytes, sizes."""

import struct
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from glle_engine.base.pictures.colors import CLASSES, PointColors
from glle_engine.base.pictures.plotting import OUTSIDE, TEAR, Panel, draw, picture, plot
from glle_engine.base.pictures.points import PointTable

RNG = np.random.default_rng(0)
Y = RNG.standard_normal((60, 2))


def size(png: bytes) -> tuple[int, int]:
    """Return width and height from the header of a PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_picture_has_its_width_and_always_the_same_bytes() -> None:
    """With any number of components, and with outliers; a verdict is not parsed as mathematics."""
    far = np.concatenate([RNG.standard_normal((500, 3)), [[1e6, 1e6, 0]]])
    tables = [PointTable(points, verdict="$\\frac{1$") for points in (Y, Y[:, :1], far, Y)]
    first, *others, again = map(picture, tables)
    assert {size(png) for png in (first, *others)} == {(1040, 1110)}
    assert first == again
    assert first not in others


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
    long, short = (size(picture(PointTable(points, labels=each))) for each in (names, names.astype("U1")))
    assert long[0] == short[0] == 1040
    assert long[1] > short[1]
    days = np.datetime64("2024-01-01") + np.arange(60)
    axes = plot(points, days)
    axes.figure.canvas.draw()
    assert axes.figure.axes[1].get_yticklabels()[0].get_text().startswith("2024-01")


@pytest.mark.parametrize("count", [1, len(CLASSES), 20])
def test_each_class_has_a_distinct_color(count: int) -> None:
    """The number of colors equals the number of classes."""
    arguments = PointColors.from_values("x", np.arange(float(count))).arguments()
    assert len({tuple(arguments["cmap"](i)) for i in range(count)}) == count
    assert (arguments["vmin"], arguments["vmax"]) == (-0.5, count - 0.5)


def test_numbers_and_days_have_their_range() -> None:
    """Of the finite ones; equal numbers, and none at all, have a range of one."""
    ranges = [([1.5, np.nan, 4.0], (1.5, 4)), ([2.5, 2.5], (2.5, 3.5)), ([np.nan] * 2, (0, 1))]
    for values, expected in ranges:
        arguments = PointColors.from_values("x", np.array(values)).arguments()
        assert (arguments["vmin"], arguments["vmax"]) == expected
    days = PointColors.from_values("when", np.array(["1970-01-03T12", "NaT"], "M8[h]"))
    np.testing.assert_array_equal(days.values, [2.5, np.nan])
    assert days.is_time


def shown(Y: Any, *, inches: float = 5.2, title: str = "", **marks: Any) -> Any:
    """Return the axes of a panel of points in one color, with marks."""
    axes = Figure().add_subplot()
    panel = Panel(title, Y, marks.pop("colors", PointColors("", np.zeros(len(Y)), ("",))), **marks)
    draw(axes, panel, inches=inches)
    return axes


GRID = np.stack(np.meshgrid(np.linspace(0, 1, 32), np.linspace(0, 2, 32)), axis=-1).reshape(-1, 2)


def test_the_view_has_all_points_but_outliers() -> None:
    """A square with a margin; regions are in it, as far as they are no wider than half of the picture."""
    for far, said in (([], []), ([[50, 0]], ["1 point outside"]), ([[50, 0], [0, -9]], ["2 points outside"])):
        axes = shown(np.concatenate([GRID, np.reshape(far, (-1, 2))]))
        assert [*axes.get_xlim(), *axes.get_ylim()] == pytest.approx([-0.58, 1.58, -0.08, 2.08])
        assert [text.get_text() for text in axes.texts] == said
    column = shown(GRID[:, 1:])
    assert [*column.get_xlim(), *column.get_ylim()] == pytest.approx([-0.08, 2.08, -40.7563, 1063.7563])
    low, high = shown(np.full((5, 2), 3.0)).get_xlim()
    assert (3 - low, high - 3) == (pytest.approx(2e-9, rel=1e-3), pytest.approx(2e-9, rel=1e-3))
    for variances, limits, count in (
        ((0.04, 0.01), [-0.78, 1.78, -0.28, 2.28], 8),
        ((0.4, 0.1), [-1.21246, 2.21246, -0.71246, 2.71246], 3),
    ):
        regions = np.tile(np.diag(variances), (len(GRID), 1, 1))
        axes = shown(GRID, covariance=regions, radii={0.5: 1.0, 0.9: 2.0})
        assert [*axes.get_xlim(), *axes.get_ylim()] == pytest.approx(limits, rel=1e-4)
        ellipses = [(patch.width, patch.height, patch.angle) for patch in axes.patches]
        sides = 2 * np.sqrt(variances)
        assert ellipses == [pytest.approx((*(radius * sides), 0.0)) for _ in range(count) for radius in (1, 2)]


def test_an_audit_is_drawn_on_its_points() -> None:
    """Outlines and names of islands, tears, and rings on a few folded points; an island without points has no mark."""
    folded = np.arange(len(GRID)) < 3
    islands = {0: ("A", True), 1: ("B", False), 2: ("C", True)}
    of_islands = (GRID[:, 0] > 0.5).astype(int)
    tears = np.array([[0, 5]])
    axes = shown(GRID, title="✔ yes", islands=islands, of_islands=of_islands, tears=tears, is_folded=folded)
    assert [(patch.get_linestyle(), patch.get_linewidth()) for patch in axes.patches] == [("-", 1.2), ("--", 0.8)]
    box = axes.patches[0].get_xy()
    np.testing.assert_allclose([box.min(axis=0), box.max(axis=0)], [[-0.0145161, -0.06], [0.4983871, 2.06]], rtol=1e-5)
    wedge = shown(GRID, islands={1: ("A", True)}, of_islands=(GRID.sum(axis=1) < 1).astype(int)).patches[0].get_xy()
    np.testing.assert_allclose([wedge.min(axis=0), wedge.max(axis=0)], [[0, 0], [1, 1]], atol=0.05)
    assert [text.get_text() for text in axes.texts] == ["A", "B"]
    points, lines, rings = axes.collections
    assert len(points.get_offsets()) == len(GRID)
    np.testing.assert_array_equal(lines.get_segments(), [GRID[[0, 5]]])
    np.testing.assert_array_equal(rings.get_offsets(), GRID[:3])
    assert axes.title.get_color() == "#1a7f37"
    assert TEAR not in (axes.title.get_color(), shown(GRID).title.get_color())
    for none in (np.zeros(len(GRID), bool), np.arange(len(GRID)) >= 3):
        assert len(shown(GRID, is_folded=none).collections) == 1
    assert not shown(GRID[:, :1], islands=islands, of_islands=of_islands).patches
    of_islands[:4] = -1
    gray = shown(GRID, islands=islands, of_islands=of_islands).collections[1]
    np.testing.assert_array_equal(gray.get_offsets(), GRID[:4])
    assert to_hex(gray.get_facecolors()[0]) == OUTSIDE


def test_names_of_groups_are_on_their_points_or_beside_others() -> None:
    """With the number of others from which they stay apart, if they are few."""
    apart = PointColors("g", np.repeat([0.0, 1.0], 512), ("low", "high"))
    axes = shown(GRID[:, ::-1], colors=apart, apart_from={"low": 1, "high": 0})
    assert [(text.get_text(), *text.get_position()) for text in axes.texts] == [
        ("low: 1/1", pytest.approx(15 / 31), 0.5),
        ("high: 0/1", pytest.approx(47 / 31), 0.5),
    ]
    names = tuple(f"n{i}" for i in range(11))
    mixed = PointColors("g", np.arange(1024) % 11 * 1.0, names=names)
    axes = shown(GRID, colors=mixed, apart_from=dict.fromkeys(names, 1))
    assert [text.get_text() for text in axes.texts] == list(names)
    half = 2.16 / (72 * 5.2) * np.array([0.35 * 5.5 * 2, 0.7 * 5.5])
    places = np.array([text.get_position() for text in axes.texts[:10]])
    apart_by = np.abs(places[:, None] - places) / (2 * half)
    assert (apart_by.max(axis=2)[~np.eye(10, dtype=bool)] > 1 - 1e-9).all(), "no name covers another one"
    assert np.abs(places - [0.5, 1]).max() < 0.15


@pytest.mark.parametrize(
    ("n", "inches", "area", "title", "below"),
    [
        (10, 5.2, 14 * 1.625**2, [84, 64], [77, 77, 23]),
        (4500, 5.2, 2 * 1.625**2, [84, 64], [77, 77, 23]),
        (1000, 3.2, 9, [64, 64, 19], [47, 47, 47, 35]),
        (20_000, 3.2, 0.6, [64, 64, 19], [47, 47, 47, 35]),
    ],
)
def test_points_and_lines_follow_from_the_size(
    n: int, inches: float, area: float, title: list[int], below: list[int]
) -> None:
    """Many points are small, lines as long as the panel, and letters small in narrow ones."""
    Y = RNG.standard_normal((n, 2))
    axes = shown(Y, inches=inches, title="word " * 30, below="below " * 30)
    assert axes.collections[0].get_sizes() == pytest.approx([area])
    assert [len(line) for line in axes.get_title().split("\n")] == title
    assert [len(line) for line in axes.get_xlabel().split("\n")] == below
    assert (axes.title.get_fontsize(), axes.xaxis.label.get_fontsize()) == ((9, 7.5) if inches > 4 else (6.5, 6.5))


@pytest.mark.parametrize(
    ("by", "values", "sizes", "opacities"),
    [
        ("size", [2.0, 4.0, 3.0], [0.5, 6.0, 3.25], None),
        ("opacity", [2.0, 4.0, 3.0], None, [1.0, 0.12, 0.56]),
        ("opacity", [2.0, 2.0, 2.0], None, [1.0, 1.0, 1.0]),
    ],
)
def test_a_spread_is_the_size_or_the_opacity(by: Any, values: Any, sizes: Any, opacities: Any) -> None:
    """Relative to the usual area; of points of large spread large, or faint."""
    drawn: Any = plot(Y[:3], spread=np.array(values), by=by).collections[0]
    relative = np.ones(3) if sizes is None else np.array(sizes)
    np.testing.assert_allclose(drawn.get_sizes() * np.ones(3), 14 * 1.625**2 * relative)
    np.testing.assert_allclose(np.asarray(drawn.get_alpha(), np.float64), np.asarray(opacities, np.float64))
