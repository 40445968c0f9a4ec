"""`NUMBERS` stands for the engine's results: where these change, it has to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import glle_engine
from glle_engine import NUMBERS, manifolds

KEPT = Path(__file__).with_name("numbers.json")
FITS: dict[str, dict[str, Any]] = {
    "default": {},
    "em": {"method": "em", "variant": "published"},
    "direct": {"method": "direct", "variant": "published"},
    "three": {"n_components": 3, "n_neighbors": 8},
}
TOLERANCE = 1e-6  # between processors and libraries; a change of the order of sums is not detected


def found() -> dict[str, list[float]]:
    """Return some numbers of each kind of fit: of the weights, the embedding, and draws."""
    X = manifolds.make("s_curve", 60, seed=5).X
    numbers = {}
    for name, options in FITS.items():
        posterior = glle_engine.fit(X, **options)
        parts = [posterior.mean, posterior.embedding, posterior.eigenvalues, posterior.weights(3, seed=1)]
        if name != "em":  # whose draws have several null vectors, of which rounding chooses
            parts += [posterior.draw(3, seed=1).embedding, posterior.draw(4, scale=0.5).embedding]
        numbers[name] = [float(value) for part in parts for value in np.ravel(part)[:6]]
    return numbers


def test_other_numbers_have_another_version() -> None:
    """If this fails, results have changed: write the coming release into NUMBERS, then run this file."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert kept["numbers"] == NUMBERS
    for name, values in found().items():
        np.testing.assert_allclose(values, kept["found"][name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


if __name__ == "__main__":
    KEPT.write_text(json.dumps({"numbers": NUMBERS, "found": found()}, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"Written to {KEPT}.\n")
