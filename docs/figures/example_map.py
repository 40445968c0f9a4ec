"""The explorer's example: UMAP of the handwritten digits, with its audit: `python -m docs.figures.example_map`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import glle
from worker.base.problems import notes_in_http

EXAMPLES = Path(__file__).resolve().parents[2] / "service" / "explorer" / "examples"
METHOD = "umap"
ARRAYS = ("embedding", "island", "is_torn", "is_glued", "seam", "p_value", "is_point_beyond", "stability")


def rounded(values: np.ndarray) -> list[Any]:
    """Return an array as JSON-able lists, rounded to three decimals; booleans become 0 and 1."""
    whole = np.issubdtype(values.dtype, np.integer) or values.dtype == bool
    numbers: list[Any] = values.astype(int).tolist() if whole else values.round(3).tolist()
    return numbers


def main() -> None:
    """Audit UMAP of the digits, and save the result for the explorer in the form in which a service answers."""
    names = (EXAMPLES / "digits.csv").read_text().split("\n", 1)[0].split(",")[1:]
    table = np.loadtxt(EXAMPLES / "digits.csv", delimiter=",", skiprows=1)
    audited = glle.audit(table[:, 1:], method=METHOD, labels=table[:, 0].astype(int), names=names)
    audited = replace(audited, notes=tuple(note.with_names(names) for note in audited.notes))
    arrays = {name: {"data": rounded(values)} for name, values in audited.arrays().items() if name in ARRAYS}
    body = {**audited.to_dict(), "notes": notes_in_http(audited.notes), "method": METHOD, "arrays": arrays}
    (EXAMPLES / "digits-umap.json").write_text(json.dumps(body, separators=(",", ":"), allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
