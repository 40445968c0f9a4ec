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
from glle_engine.linalg.dense import has_compiler
from glle_engine.posterior import fingerprint
from qa.processors.__main__ import other_processors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glle_engine import Draw

ROOT = Path(__file__).resolve().parents[3]


def output_of(*arguments: str, environment: dict[str, str] | None = None, first: Path = ROOT) -> str:
    """Return the output of another process of Python, whose path begins with a folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {}), "PYTHONPATH": f"{first}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.skipif(not has_compiler(), reason="without numba the bits are those of the processor's libraries")
def test_the_pinned_kind_is_this_one() -> None:
    """With numba the reference results have the pinned bits; where they changed, NUMBERS and PINNED change together."""
    assert fingerprint.fingerprint() == fingerprint.PINNED
    assert fingerprint.numerics_kind() == ""


def test_the_command_prints_the_bits_of_any_processor() -> None:
    """`python -m glle_engine.posterior.fingerprint` prints the digest and the pinned one, the same on the oldest."""
    oldest = next(iter(other_processors()), {}) if has_compiler() else {}  # without numba BLAS sums as it likes
    output = output_of("-m", "glle_engine.posterior.fingerprint", environment=oldest)
    assert f"fingerprint {fingerprint.fingerprint()}\n" in output
    assert f"pinned      {fingerprint.PINNED}\n" in output


def test_without_numba_the_kind_is_known(tmp_path: Path) -> None:
    """The fallbacks compute the same results in other bits, which have a digest as well: the same each time."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numba'] = None\n", encoding="utf-8")
    code = "from glle_engine.posterior import fingerprint as f; print(f.fingerprint(), f.numerics_kind() or 'pinned')"
    digest, kind, again = output_of("-c", f"{code}; print(f.fingerprint.__wrapped__())", first=tmp_path).split()
    assert len(digest) == fingerprint.DIGITS
    assert int(digest, 16) >= 0
    assert kind == ("pinned" if digest == fingerprint.PINNED else digest)
    assert again == digest


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


@pytest.mark.skipif(not has_compiler(), reason="without numba there is one order and no fronts")
def test_the_references_cover_both_orders_and_wide_fronts() -> None:
    """The digest covers minimum degree and nested dissection, and fronts of one and of several supernodes."""
    sparse = [fitted for fitted in fingerprint.fits() if fitted.diagnostics.figures["elimination"]]
    orders = {fitted.diagnostics.figures["elimination"]["order"] for fitted in sparse}
    widths = np.concatenate([np.diff(fitted.eigenproblem.pattern.structure.front) for fitted in sparse])
    assert orders == {"minimum-degree", "nested-dissection"}
    assert widths.min() == 1
    assert widths.max() > 1
