"""The example notebooks, which are percent scripts in docs/examples, run from the first cell to the last."""

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
    """Change to an empty folder, and close all figures at the end."""
    monkeypatch.chdir(tmp_path)
    plt.close("all")


def test_digits() -> None:
    """The audit finds structure in the digits, and 0 stays apart from most others."""
    pytest.importorskip("umap")
    names = runpy.run_path(str(EXAMPLES / "digits.py"))
    assert names["audit"].beyond_chance
    assert names["apart"].shape == (10, 10)
    assert (names["apart"][0] > 0.9).sum() >= 5


def test_questionnaire() -> None:
    """Answers have structure and shuffled answers have none; notes name missing answers and the id."""
    names = runpy.run_path(str(EXAMPLES / "questionnaire.py"))
    assert names["audit"].beyond_chance
    assert any("median" in note.message for note in names["posterior"].notes)
    assert names["summary"].spread.shape == (400,)


def test_single_cells() -> None:
    """The rare cell type stays apart from the others."""
    pytest.importorskip("umap")
    names = runpy.run_path(str(EXAMPLES / "single_cells.py"))
    apart = names["audit"].groups.apart
    assert apart.shape == (3, 3)
    assert names["audit"].beyond_chance
