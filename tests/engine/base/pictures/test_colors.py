"""Colors of points by labels of any type."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba

from glle_engine.base.pictures.colors import MISSING, PointColors, shorten
from glle_engine.base.pictures.plotting import plot

RNG = np.random.default_rng(0)
Y = RNG.standard_normal((30, 2))
KINDS = np.arange(30) % 3
DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(30), "D")


def texts(axes: Any) -> list[str]:
    """Return the texts of a legend."""
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.where(KINDS == 0, np.nan, RNG.standard_normal(30)), []),
        (np.where(KINDS == 0, np.nan, KINDS), ["1", "2"]),
        (pd.array([None if kind == 0 else int(kind) for kind in KINDS], dtype="Int64"), ["1", "2"]),
        ([None if kind == 0 else int(kind) for kind in KINDS], ["1", "2"]),
        ([None if kind == 0 else f"group {kind}" for kind in KINDS], ["group 1", "group 2"]),
        (pd.Categorical.from_codes(np.where(KINDS == 0, -1, KINDS), ["a", "b", "c"]), ["b", "c"]),
        (pd.array([None if kind == 0 else bool(kind == 1) for kind in KINDS], dtype="boolean"), ["False", "True"]),
        (pd.Series(DAYS).mask(KINDS == 0), []),
        (pd.Series(DAYS).dt.tz_localize("Europe/Berlin").mask(KINDS == 0), []),
        ([None if kind == 0 else day.date() for kind, day in zip(KINDS, DAYS, strict=True)], []),
    ],
)
def test_points_without_a_label_are_gray_and_named(labels: Any, names: list[str]) -> None:
    """Ten of thirty; all others have a color that is not gray."""
    axes = plot(Y, labels)
    axes.figure.canvas.draw()
    colors = np.asarray(axes.collections[0].get_facecolor())
    is_gray = (colors == np.array(to_rgba(MISSING))).all(axis=1)
    assert np.array_equal(is_gray, KINDS == 0)
    assert texts(axes) == [*names, "no value (10 points)"]


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(DAYS),
        pd.Series(DAYS).dt.tz_localize("Europe/Berlin"),
        [day.to_pydatetime() for day in DAYS],
        [day.to_pydatetime().replace(tzinfo=ZoneInfo("America/Lima")) for day in DAYS],
        [day.date() for day in DAYS],
        [day.date().isoformat() for day in DAYS],
        [f"{day.isoformat()}+02:00" for day in DAYS],
    ],
)
def test_dates_are_on_a_scale_of_dates(labels: Any) -> None:
    """In their own zone, from objects, frames and the texts of tables."""
    colors = PointColors.from_labels(labels, len(DAYS))
    assert colors.is_time
    np.testing.assert_array_equal(colors.values, 19_723 + np.arange(30))


def test_zones_are_read_in_the_first_one() -> None:
    """Two moments of one time have one color; durations are days."""
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    moments: Any = [noon, noon.astimezone(ZoneInfo("Asia/Tokyo")), None]
    colors = PointColors.from_labels(moments, 3)
    np.testing.assert_array_equal(colors.values, [19_723.5, 19_723.5, np.nan])
    lasting = PointColors.from_labels(pd.Series(DAYS - DAYS[0], name="wait"), 30)
    assert (lasting.title, lasting.is_time) == ("wait (days)", False)
    np.testing.assert_array_equal(lasting.values, np.arange(30))


def test_whole_numbers_have_all_digits() -> None:
    """Of classes of numbers of a million and more."""
    for kind in (np.int64, np.float64):
        colors = PointColors.from_labels(np.array([1_000_000, 1_234_567, 2_345_678], kind), 3)
        assert colors.classes == ("1000000", "1234567", "2345678")


def test_numbers_in_texts_are_a_scale() -> None:
    """A table with gaps has numbers as texts."""
    colors = PointColors.from_labels(np.array([*(f"{each / 7}" for each in range(29)), ""]), 30)
    assert not colors.names
    np.testing.assert_array_equal(colors.values, np.append(np.arange(29) / 7, np.nan))
    assert colors.missing == 1


def test_many_words_are_named_beside_their_scale() -> None:
    """All up to 24, else 24 that are evenly among them."""
    for count in (21, 60):
        words = np.array([f"word {number:02d}" for number in range(count)])
        axes = plot(RNG.standard_normal((count, 2)), words)
        shown = [tick.get_text() for tick in axes.figure.axes[1].get_yticklabels()]
        assert len(shown) == min(count, 24)
        assert shown[0] == words[0]
        assert shown[-1] == words[-1]
        assert set(shown) <= set(words)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a", "b" * 31], ["a", "b" * 29 + "…"]),
        ([f"{'very ' * 9}long {i}" for i in range(2)], [f"very very very…ery very long {i}" for i in range(2)]),
        (
            [f"{'x' * 40}{i}{'y' * 40}" for i in range(2)],
            [f"…xxxx{i}{'y' * 23}…" for i in range(2)],
        ),
    ],
)
def test_long_names_stay_different(names: list[str], short: list[str]) -> None:
    """They lose their end, their middle, or what comes before they differ."""
    assert list(shorten(names)) == short


def test_the_legend_of_many_classes_has_the_colors_of_their_points() -> None:
    """They are along one scale, from the first class to the last one, and the named ones are evenly spaced."""
    colors = PointColors.from_labels([f"class {i:02}" for i in range(60)], 60)
    cmap = colors.arguments()["cmap"]
    entries = {line.get_label(): line.get_color() for line in colors.handles()}
    assert [int(name[-2:]) for name in entries] == colors.some_names()
    assert list(entries.values()) == [cmap(i / 59) for i in colors.some_names()]
    assert len(set(entries.values())) == len(entries) > 5
