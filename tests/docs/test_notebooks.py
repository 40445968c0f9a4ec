"""The example notebooks, percent scripts of docs/examples, run from the first cell to the last."""

import runpy
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from tests.docs.pages import ROOT

mpl.use("Agg")
pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in an empty folder, and close all pictures."""
    monkeypatch.chdir(tmp_path)
    plt.close("all")


def test_digits() -> None:
    """The audit finds structure, and 0 is apart from most digits."""
    pytest.importorskip("umap")
    names = runpy.run_path(str(EXAMPLES / "digits.py"))
    assert names["audit"].beyond_chance
    assert names["apart"].shape == (10, 10)
    assert (names["apart"][0] > 0.9).sum() >= 5


def test_questionnaire() -> None:
    """The answers have structure, shuffled answers have none; missing answers and the id are among the notes."""
    names = runpy.run_path(str(EXAMPLES / "questionnaire.py"))
    assert names["audit"].beyond_chance
    assert any("median" in note.message for note in names["posterior"].notes)
    assert names["summary"].spread.shape == (400,)


def test_single_cells() -> None:
    """The rare type stays apart from the others."""
    pytest.importorskip("umap")
    names = runpy.run_path(str(EXAMPLES / "single_cells.py"))
    apart = names["audit"].groups.apart
    assert apart.shape == (3, 3)
    assert names["audit"].beyond_chance
