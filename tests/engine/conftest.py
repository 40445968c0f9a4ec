"""Small data for the engine's tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glle_engine import Posterior, fit

# Numbers to test against may lie beside the repository; a clone alone does not have them.
ORACLES = Path(__file__).resolve().parents[3] / "shared" / "data"


def bent_sheet(n: int, *, seed: int = 3) -> NDArray[np.float64]:
    """Return n points of a sheet of 30 by 20, bent to an arc of 4.5 radians.

    On so short a sheet no embedding is a mode swap. On a few hundred points of a Swiss roll most are.
    """
    along, across = np.random.default_rng(seed).random((2, n))
    return 20 * np.stack([np.sin(4.5 * along) / 3, across, np.cos(4.5 * along) / 3], axis=1)


def principal(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first two principal components (n, 2) of points (n, d)."""
    centered = points - points.mean(axis=0)
    return np.asarray(centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T)


def linked_clusters() -> NDArray[np.float64]:
    """Return two clusters, 80 and 70 points, and a line of 12 points from which edges lead into both of them."""
    rng = np.random.default_rng(1)
    line = np.stack([np.linspace(3, 27, 12), np.zeros(12)], axis=1)
    return np.concatenate([rng.normal(0, 1, (80, 2)), rng.normal((30, 0), 1, (70, 2)), line])


@pytest.fixture(scope="session")
def sheet() -> NDArray[np.float64]:
    """Return 400 points of a bent sheet."""
    return bent_sheet(400)


@pytest.fixture(scope="session")
def posterior(sheet: NDArray[np.float64]) -> Posterior:
    """Return the default posterior of the sheet."""
    return fit(sheet)


@pytest.fixture(scope="session")
def wide() -> NDArray[np.float64]:
    """Return 300 points of a curved sheet in 25 dimensions, more than neighbors."""
    coordinates = np.random.default_rng(5).uniform(-1, 1, (300, 2))
    directions = np.random.default_rng(6).standard_normal((2, 25))
    return np.asarray(np.sin(coordinates @ directions) + 0.01 * np.random.default_rng(7).standard_normal((300, 25)))


def reference_data(name: str) -> Any:
    """Return the content of a file of reference numbers, or skip the test without it."""
    if not (ORACLES / name).exists():
        pytest.skip(f"{name} is not beside the repository")
    return np.load(ORACLES / name, allow_pickle=False)


@pytest.fixture(params=["scurve", "digits"])
def oracle(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return one of the two files of reference numbers, as a dictionary."""
    with reference_data(f"oracle_{request.param}.npz") as file:
        return {name: file[name] for name in file.files}
