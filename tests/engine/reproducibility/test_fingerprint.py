"""The fingerprint detects a machine that computes other bits."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import Posterior
from glle_engine.posterior import fingerprint
from qa.processors.__main__ import other_processors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine import Draw

ROOT = Path(__file__).resolve().parents[3]


def output_of(*arguments: str, environment: dict[str, str]) -> str:
    """Return the output of another process of Python."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_this_machine_has_the_pinned_fingerprint() -> None:
    """The reference results have the pinned bits; where they changed, NUMBERS and PINNED change together."""
    assert fingerprint.fingerprint() == fingerprint.PINNED


def test_the_command_prints_the_bits_of_any_processor() -> None:
    """`python -m glle_engine.posterior.fingerprint` prints the digest and the pinned one, the same on the oldest."""
    oldest = next(iter(other_processors()), {})
    output = output_of("-m", "glle_engine.posterior.fingerprint", environment=oldest)
    assert f"fingerprint {fingerprint.fingerprint()}\n" in output
    assert f"pinned      {fingerprint.PINNED}\n" in output


@pytest.mark.parametrize("align", ["procrustes", "none"])
def test_one_other_bit_is_seen(monkeypatch: pytest.MonkeyPatch, align: str) -> None:
    """The last bit of one value of one draw changes the digest."""
    before = fingerprint.fingerprint()
    original = Posterior.draws_of

    def draws_of(self: Posterior, *keys: Any, **law: Any) -> Iterator[Draw]:
        for draw in original(self, *keys, **law):
            embedding = draw.embedding.copy()
            if draw.align == align and draw.index == 1:
                embedding[3, 1] = np.nextafter(embedding[3, 1], np.inf)
            yield replace(draw, embedding=embedding)

    monkeypatch.setattr(Posterior, "draws_of", draws_of)
    assert fingerprint.fingerprint.__wrapped__() != before


def test_the_reference_data_are_exact() -> None:
    """Each value is a multiple of 2^-29, of which float64 holds every one: no rounding, so no difference."""
    for X in (fingerprint.sheet(50), fingerprint.solid(50)):
        scaled = X * 2.0**29
        np.testing.assert_array_equal(scaled, np.round(scaled))
        assert np.abs(scaled).max() < 2.0**53
        assert X.shape[1] > 15


def test_the_references_cover_both_orders_and_wide_fronts() -> None:
    """The digest covers minimum degree and nested dissection, and fronts of one and of several supernodes."""
    sparse = [fitted for fitted in fingerprint.fits() if fitted.diagnostics.figures["elimination"]]
    orders = {fitted.diagnostics.figures["elimination"]["order"] for fitted in sparse}
    widths = np.concatenate([np.diff(fitted.eigenproblem.pattern.structure.front) for fitted in sparse])
    assert orders == {"minimum-degree", "nested-dissection"}
    assert widths.min() == 1
    assert widths.max() > 1
