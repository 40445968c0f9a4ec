"""`glle.compare`: which map to show, as sentences, a table, a figure and HTML."""

from typing import Any

import numpy as np
import pytest

import glle
from glle.resources.results import Result

pd = pytest.importorskip("pandas")
X = glle.datasets.make("s_curve", 120, seed=4).X
SIDES = np.where(X[:, 0] > 0, "right", "left")


@pytest.fixture(scope="module")
def comparison() -> Any:
    """Return a comparison of two methods and a third whose name is unknown."""
    table = pd.DataFrame(X, columns=list("abc")).assign(side=SIDES)
    methods = ["pca", ("isomap", {"n_neighbors": 12}), "nonsense"]
    return glle.compare(table, methods, labels="side", scores=["trustworthiness", "neighborhood_hit"], threads=1)


def test_it_prints_the_answer(comparison: Any) -> None:
    """`str` has at most three sentences; `repr` adds a row for each map and the reason of a failure."""
    assert str(comparison).splitlines() == list(comparison.sentences)
    assert 1 <= len(comparison.sentences) <= 3
    assert set(comparison.best) == {"neighbors", "layout", "groups"}
    assert set(comparison.best.values()) <= {"pca", "isomap", None}
    lines = repr(comparison).splitlines()
    assert lines[: len(comparison.sentences)] == list(comparison.sentences)
    assert "nonsense: method='nonsense' is not known" in repr(comparison)
    assert set(comparison.audits) == set(comparison.facts) == set(comparison.embeddings) == {"pca", "isomap"}


def test_a_row_for_each_map(comparison: Any) -> None:
    """The frame has what the answer rests on, the scores, and the problem of a method that failed."""
    frame = comparison.frame()
    assert list(frame.index) == ["pca", "isomap", "nonsense"]
    assert {"level", "neighbors", "distances", "along", "trusted_islands", "trustworthiness"} <= set(frame.columns)
    assert frame.loc["pca", "neighborhood_hit"] == comparison.scores["pca"]["neighborhood_hit"]
    assert "not known" in frame.loc["nonsense", "problem"]
    for label, facts in comparison.facts.items():
        assert frame.loc[label, "level"] == (facts.level if facts.is_complete else "behind")
    best = {question for label in frame.index for question in str(frame.loc[label, "best_for"]).split(", ") if question}
    assert best == {question for question, label in comparison.best.items() if label}


def test_notebooks_and_figures(comparison: Any) -> None:
    """The table in HTML escapes labels; the figure has a panel for each map, with its level in the title."""
    html = comparison._repr_html_()  # the protocol of notebooks
    assert html.count("<tr>") == 3
    assert "<script" not in glle.compare(X, {"<script>": X[:, :2]}, audit=False)._repr_html_()
    titles = [axes.get_title() for axes in comparison.plot().axes]
    assert [title.split()[0] for title in titles] == ["pca", "isomap"]
    assert comparison.audits["pca"].level in titles[0]


def test_a_figure_has_the_colors_of_the_labels_that_it_gets(comparison: Any) -> None:
    """By default the points have the labels of the comparison, which are in the legend; other labels replace them."""

    def legend(figure: Any) -> set[str]:
        return {text.get_text() for text in figure.axes[-1].get_legend().get_texts()}

    assert legend(comparison.plot()) == {"left", "right"}
    assert legend(comparison.plot(labels=np.where(X[:, 1] > 1, "up", "down"))) == {"up", "down"}


def test_scores_alone_choose_nothing() -> None:
    """With `audit=False` coordinates, functions and methods have scores, but no sentence and no best map."""
    steps = list[tuple[int, int, str]]()
    methods = {"mine": X[:, :2], "first": lambda points: points[:, 1:], "pca": "pca"}
    alone = glle.compare(X, methods, audit=False, on_progress=lambda *step: steps.append(step))
    assert [step[:2] for step in steps] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert (alone.sentences, alone.audits, set(alone.best.values())) == ((), {}, {None})
    assert set(alone.scores) == {"mine", "first", "pca"}
    assert str(alone) == repr(alone)


def test_a_comparison_of_a_service_has_the_same_frame(comparison: Any) -> None:
    """The frame of a service's comparison equals the library's; its HTML has a row for each map that succeeded."""
    names = {"kept": "neighbors", "straight": "distances", "along": "along", "islands": "islands",
             "trusted": "trusted_islands", "grouped": "trusted_points"}  # fmt: skip
    expected = comparison.frame()
    rows = [
        {"label": label, "level": row["level"], "facts": {fact: row[name] for fact, name in names.items()},
         "scores": comparison.scores[label], "remains": row["remains"], "seconds": {"search": row["seconds"]},
         "verdict": row["verdict"], "problem": None}
        for label, row in expected.iterrows() if label != "nonsense"
    ]  # fmt: skip
    problem = {"detail": "It is <unknown>.", "remedy": "Give another."}
    rows.append({"label": "nonsense", "scores": None, "seconds": None, "problem": problem})
    rows[1] |= {"level": "yes", "is_preliminary": True}
    result = Result({}, {"sentences": [*comparison.sentences], "best": comparison.best, "rows": rows})
    frame = result.frame()
    assert list(frame.columns) == list(expected.columns)
    pd.testing.assert_frame_equal(frame.iloc[:1], expected.iloc[:1], check_dtype=False)
    assert (frame["level"].iloc[1], frame["seconds"].isna().tolist()) == ("behind", [False, False, True])
    assert frame.loc["nonsense", "problem"] == "It is <unknown>. Give another."
    assert result._table()[:2] == comparison._table()[:2]
    html = str(result._repr_html_())
    assert html.count("<tr>") == 3
    assert "It is &lt;unknown&gt;." in html
    assert Result({}, {"scale": 1.0})._repr_html_() is None
