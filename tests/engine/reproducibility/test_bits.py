"""Everything that is content-addressed has the same bits on every processor, as far as one processor can pretend.

`make -C qa slow` compares with the oldest processor, `make -C qa processors` with each kernel. `test_fingerprint.py`
compares the bits of a few fits with those on the oldest processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle_engine import manifolds
from qa.processors.__main__ import other_processors

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.timeout(300)  # each test computes all digests in a separate process


def data() -> dict[str, np.ndarray]:
    """Return a sheet, integers with many ties, clusters in many features, and few points."""
    words = np.random.Philox(key=5).random_raw(180 * 40 + 60 * 4)
    uniform = (words >> np.uint64(11)) * 2.0**-53
    clusters = uniform[: 180 * 40].reshape(180, 40) + 0.4 * (np.arange(180)[:, None] % 3 == np.arange(40) % 3)
    return {
        "roll": manifolds.make("swiss_roll", 240, seed=0).X,
        "integers": np.floor(uniform[: 160 * 30].reshape(160, 30) * 4) * (np.arange(30) < 20),
        "clusters": clusters,
        "few": uniform[180 * 40 :].reshape(60, 4),
    }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of the data sets, made once, because sines differ between processors."""
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, allow_pickle=False, **data())
    return path


def digests(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the digests that a process with these settings computes."""
    command = [sys.executable, "-W", "ignore::ImportWarning", "-m", "tests.engine.reproducibility.digests", str(path)]
    found = subprocess.run(
        command, env={**os.environ, **environment}, cwd=Path(__file__).parents[3], check=True, capture_output=True
    )
    return dict(json.loads(found.stdout))


@pytest.fixture(scope="module")
def own(stored: Path) -> dict[str, str]:
    """Return the digests on this processor as it is."""
    return digests(stored, {})


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, marks=[pytest.mark.slow] if position == 0 else [pytest.mark.processors])
        for position, setting in enumerate(other_processors())
    ],
    ids=str,
)
def test_results_do_not_depend_on_the_processor(own: dict[str, str], stored: Path, setting: dict[str, str]) -> None:
    """Dense operations, neighbors, eigenproblems, and all results of four data sets."""
    other = digests(stored, setting)
    assert len(own) > 300
    assert other.keys() == own.keys(), "the same solvers"
    assert {name: other[name] for name in own if other[name] != own[name]} == {}
