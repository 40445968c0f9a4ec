"""The widget of notebooks, tested without a browser by the traits that jupyter-scatter sends there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest

import glle

pytestmark = pytest.mark.skipif(find_spec("jscatter") is None, reason="it has no wheel for Python 3.14")
SHEET = glle.datasets.make("s_curve", 80, seed=1)
CLASSES = np.where(SHEET.coordinates[:, 0] > 0, "high", "low")


@pytest.fixture(scope="module")
def posterior() -> Any:
    """Return a posterior of a table with labels, whose index runs backwards."""
    table = pd.DataFrame(SHEET.X, range(80, 0, -1), ["x", "y", "z"]).assign(side=CLASSES)
    return glle.fit(table, labels="side", n_neighbors=8)


def test_the_player_moves_the_points(posterior: Any) -> None:
    """The slider shows the average, then the draws, all on one scale; a posterior's labels give the colors."""
    shown = glle.widget(posterior, draws=3)
    draws = [draw.embedding for draw in posterior.draws(3)]
    np.testing.assert_array_equal(shown.places, [posterior.summary(40, scale=1).consensus, *draws])
    scale = shown.scatter.xy()["x_scale"]
    limits = scale.vmin, scale.vmax
    slider = shown.box.children[-1].children[1]
    slider.value = 3
    np.testing.assert_array_equal(np.transpose([shown.scatter.xy()[axis] for axis in "xy"]), draws[2])
    assert shown.box.children[-1].children[2].value == "draw 2"
    assert (shown.scatter.xy()["x_scale"].vmin, shown.scatter.xy()["x_scale"].vmax) == limits
    slider.value = 0
    assert shown.box.children[-1].children[2].value == "average"
    assert shown.scatter.widget.color_domain == {"high": 0, "low": 1}
    assert "of a point's neighbors stay" in shown.box.children[0].value.replace("&#x27;", "'")
    assert "application/vnd.jupyter.widget-view+json" in shown._repr_mimebundle_()


def test_a_lasso_selects_rows(posterior: Any) -> None:
    """`selection` has the rows that the browser selected, whatever draw is shown."""
    shown = glle.widget(posterior, draws=1)
    assert shown.selection.tolist() == []
    shown.show_draw(0)
    shown.scatter.widget.selection = np.array([7, 3])
    assert shown.selection.tolist() == [7, 3]
    assert SHEET.X[shown.selection].shape == (2, 3)


def test_labels_are_matched_by_their_index(posterior: Any) -> None:
    """A series of labels in another order colors the same rows."""
    shown = glle.widget(posterior, pd.Series(CLASSES, posterior.index)[::-1], draws=0)
    np.testing.assert_array_equal(shown.scatter._data["label"], CLASSES)


def test_other_results_have_no_player() -> None:
    """An audit's opacity is its stability, without a slider; given embeddings are played."""
    audit = glle.audit(SHEET.X, method="pca")
    audited = glle.widget(audit, SHEET.coordinates[:, 0])
    assert len(audited.box.children) == 2
    assert audit.stability is not None
    assert audited.scatter.opacity()["by"] == "opacity"
    played = glle.widget(audit.embedding, draws=[audit.embedding, -audit.embedding])
    np.testing.assert_array_equal(played.places[2], -audit.embedding)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinates of one dimension, labels of another length and a missing library are refused with the remedy."""
    with pytest.raises(ValueError, match=r"a widget needs two.*glle\.plot"):
        glle.widget(SHEET.X[:, :1])
    with pytest.raises(ValueError, match="labels has shape"):
        glle.widget(SHEET.X[:, :2], CLASSES[:5])
    monkeypatch.setitem(__import__("sys").modules, "jscatter", None)
    with pytest.raises(ImportError, match=r"pip install 'glle\[notebook\]'"):
        glle.widget(SHEET.X[:, :2])
