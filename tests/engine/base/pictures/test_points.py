"""Results as points: coordinates, columns, regions, islands, and the sentence on how far to believe them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from glle_engine.base.errors import InvalidShapeError, NotFiniteError
from glle_engine.base.pictures.plotting import Panel, plot
from glle_engine.base.pictures.points import PointTable, count_apart

Y = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
COVARIANCE = np.tile(np.diag([4.0, 1.0]), (3, 1, 1))
SPREAD: dict[str, Any] = {"spread": np.array([1.0, 3.0, 2.0]), "covariance": COVARIANCE}
FAINT = "faint: neighbors change"


def result(**members: Any) -> Any:
    """Return a result with an embedding."""
    return SimpleNamespace(**{"embedding": Y, **members})


@pytest.mark.parametrize(
    ("members", "verdict"),
    [
        ({}, ""),
        ({"verdict": "It is so."}, "It is so."),
        ({"stability": np.full(3, 0.25), "n_draws": 8}, "25% of a point's neighbors stay in a draw"),
        ({"stability": np.ones(3), "n_draws": 8, "notes": [{"code": "unrelated-draws"}]},
         "Do not read positions or neighbors: 100% of a point's neighbors stay in a draw"),
    ],
)  # fmt: skip
def test_a_result_says_how_far_to_believe_it(members: Any, verdict: str) -> None:
    """By its own verdict, or the share of neighbors that stay."""
    text = PointTable.from_result(result(**members)).verdict
    assert text == (f"{verdict}, the mean of 8 draws." if "n_draws" in members else verdict)


def test_regions_need_two_coordinates_and_a_spread() -> None:
    """The regions of an audit have their own half axes and radii; those of a covariance are normal ones."""
    normal = PointTable.from_result(result(**SPREAD))
    np.testing.assert_array_equal(normal.covariance, COVARIANCE)
    assert normal.radii[0.9] == pytest.approx(np.sqrt(-2 * np.log(0.1)), abs=1e-4)
    for other in (result(covariance=COVARIANCE), result(**SPREAD, embedding=Y[:, :1])):
        assert PointTable.from_result(other).covariance is None
    regions = SimpleNamespace(levels=[0.5], radii=[1.5], half_axes=np.tile(np.diag([3.0, 2.0]), (3, 1, 1)))
    points = PointTable.from_result(result(regions=regions))
    assert points.covariance is not None
    np.testing.assert_array_equal(points.covariance[0], np.diag([9.0, 4.0]))
    assert points.radii == {0.5: 1.5}
    panel = Panel.from_result(result(**SPREAD))
    assert panel.below == f"{FAINT}; ellipses: 50% and 90% regions of some points"
    np.testing.assert_allclose(np.asarray(panel.opacities, np.float64), [1.0, 0.12, 0.56])


@pytest.mark.parametrize(
    ("level", "stays", "islands"),
    [
        ("trust", [True, False], {0: ("A", True), 1: ("B", False)}),
        ("partly", [True, True], {0: ("A", True), 1: ("B", True)}),
        ("no", [True, True], {0: ("A", False), 1: ("B", False)}),
        ("trust", [True], {}),
    ],
)
def test_an_audit_has_islands_and_tears(level: str, stays: list[bool], islands: Any) -> None:
    """None stays where nothing is to be trusted, and a single one is none; groups have the number of others."""
    groups = {"names": ["u", "v", "w"], "apart": [[0, 0.9, 0.2], [0.9, 0, 0.95], [0.2, 0.95, 0]]}
    audit = result(
        level=level, verdict="So.", islands={"names": ["A", "B"][: len(stays)], "stays": stays}, tears=[[0, 2]],
        neighborhood=np.array([0.0, 0.5, 1.0]), island=np.array([0, 0, 1]), is_glued=np.array([True, False, False]),
        groups=groups, labels=np.array(["u", "v", "w"]),
        lines=[{"role": "read", "text": "So.", "parts": ["So."]}, {"role": "why", "text": "For.", "parts": ["For."]}],
    )  # fmt: skip
    points = PointTable.from_result(audit)
    assert (points.level, points.islands, points.tears.tolist()) == (level, islands, [[0, 2]])
    assert points.apart_from == {"u": 1, "v": 2, "w": 1}
    panel = Panel.from_result(audit)
    assert panel.has_folds
    assert panel.title.endswith("\n✓ So."), "without the reason"
    assert (panel.colors.classes, panel.apart_from) == (("u", "v", "w"), points.apart_from)
    marks = ["red lines: torn neighbors", "red rings: laid onto others"]
    outlines = ["solid outline: island to trust; dashed: not"] if islands else []
    numbers = "numbers: from how many of the others a group stays apart"
    assert panel.below.split("; ", 1)[0] == FAINT
    assert panel.below == "; ".join([FAINT, *outlines, *marks, numbers])


def test_labels_have_the_title_of_their_column() -> None:
    """Given ones have none, unless they are a named series; many classes of groups are found by their names."""
    points = PointTable(Y, labels=np.array(["a", "b", "a"]), label="kind")
    for labels, title in ((None, "kind"), (["u", "v", "u"], "")):
        legend: Any = plot(points, labels).get_legend()
        assert legend.get_title().get_text() == title
    names = [f"n{i:02}" for i in range(30)]
    many = PointTable(np.zeros((30, 2)), labels=np.array(names), apart_from={"n07": 3, "other": 1})
    assert Panel.from_result(many).apart_from == {"n07": 3}


@pytest.mark.parametrize(("n", "draws"), [(100, 40), (10_000, 40), (20_000, 20), (100_000, 4), (1_000_000, 4)])
def test_a_posterior_is_a_summary_of_some_draws(n: int, draws: int) -> None:
    """Fewer of many points."""
    counts = list[int]()

    def summary(count: int, scale: float) -> Any:
        counts.append(count)
        return result(scale=scale)

    np.testing.assert_array_equal(PointTable.from_result(SimpleNamespace(n_points=n, summary=summary)).places, Y)
    assert counts == [draws]


def test_what_has_no_points_is_refused() -> None:
    """By its shape, or by the first point without finite coordinates; groups are apart from a share of .9 on."""
    for wrong in (np.zeros(3), np.zeros((2, 0)), [["a", "b"]], "text"):
        with pytest.raises(InvalidShapeError, match="has no coordinates of points"):
            PointTable.from_result(wrong)
    with pytest.raises(InvalidShapeError, match="no points to draw"):
        Panel.from_result(np.zeros((0, 2)))
    with pytest.raises(NotFiniteError, match=r"2 of 3 points have .* the first is row 1, counted from 0"):
        Panel.from_result(np.array([[0.0, 1.0], [np.nan, 0.0], [0.0, np.inf]]))
    assert count_apart([[0, 0.9], [0.89, 0]]).tolist() == [1, 0]
