"""The lists of known figures and notes have those of every fit."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import glle_engine
from glle_engine import fit, manifolds
from glle_engine.posterior.findings.names import FIGURES, NOTES

ENGINE = Path(glle_engine.__file__).parent
SOURCES = [
    ENGINE / "posterior" / "fit.py",
    *(ENGINE / "posterior" / "findings").glob("*.py"),
    *(ENGINE / "posterior" / "placement").glob("*.py"),
    ENGINE / "base" / "diagnostics.py",
    ENGINE / "graph" / "neighbors.py",
]


def test_every_code_of_a_note_is_known() -> None:
    """The codes in the sources of a fit are the listed ones."""
    calls = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    notes = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Note" and call.args]
    assert {ast.literal_eval(note.args[0]) for note in notes} == NOTES


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "direct"},
        {"noise": "auto", "n_neighbors": 8},
        {"neighborhoods": "adaptive"},
        {"landmarks": 100},
        {"disconnected": "bridge", "n_neighbors": 4},
        {"variant": "published"},
        {"variant": "published", "method": "direct"},
        {"variant": "published", "covariance": "full", "max_iter": 3},
        {"metric": "cosine"},
    ],
    ids=str,
)
def test_every_figure_of_a_fit_is_known(options: dict[str, Any]) -> None:
    """The figures of each variant are among the listed ones."""
    posterior = fit(manifolds.make("s_curve", 300, seed=0).X, **options)
    assert posterior.diagnostics.figures.keys() <= FIGURES
