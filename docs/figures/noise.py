"""Trust of draws under both laws of the noise and under the chosen one.

`python -m docs.figures.noise` prints a table of docs/explanation/posterior.md in some ten minutes.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits

from glle_engine import fit, manifolds
from glle_engine.posterior.findings.trust import LAWS, trust_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from glle_engine import Posterior

SAMPLES, DRAWS = 4, 24
SHEETS = {"swiss_roll": "Swiss roll", "s_curve": "S-curve", "severed_bowl": "bowl", "swiss_roll_hole": "roll with hole"}
NOISES = (0.0, 0.01, 0.03)


@dataclass(frozen=True)
class Setting:
    """Data set: a sheet with noise, or a part of the digits."""

    name: str
    n: int
    noise: float = 0.0

    def sample(self, seed: int) -> NDArray[np.float64]:
        """Return the points (n, d) of a seed."""
        if self.name == "digits":
            data = np.asarray(load_digits().data, np.float64)
            return np.ascontiguousarray(data[np.random.default_rng(seed).permutation(len(data))[: self.n]])
        return manifolds.make(self.name, self.n, noise=self.noise, seed=seed).X


def settings() -> list[Setting]:
    """Return the settings of the table."""
    sheets = [Setting(name, n, noise) for name in SHEETS for n in (2000, 5000) for noise in NOISES]
    return [*sheets, Setting("digits", 1500)]


def mean_trust(X: NDArray[np.float64], posterior: Posterior) -> float:
    """Return the mean trust of draws at scale 1, other ones than those of the fit."""
    return float(np.mean([trust_of(X, draw.embedding) for draw in posterior.draws(DRAWS)]))


def choice(setting: Setting, seeds: Iterable[int]) -> tuple[list[dict[str, float]], list[str]]:
    """Return the trust of each law and of the chosen one ("auto"), and the chosen law, for each sample."""
    rows: list[dict[str, float]] = []
    laws: list[str] = []
    for seed in seeds:
        X = setting.sample(seed)
        row: dict[str, float] = {
            law: mean_trust(X, fit(X, n_neighbors=10, noise=law, disconnected="bridge")) for law in LAWS
        }
        laws.append(fit(X, n_neighbors=10, noise="auto", disconnected="bridge").spec.noise)
        rows.append({**row, "auto": row[laws[-1]]})
    return rows, laws


def by_law(rows: list[dict[str, float]], laws: list[str]) -> str:
    """Return cells: mean trust with the lowest sample for each law and the choice, and the count of tangent choices."""
    cells = [
        f"{np.mean(values):.4f} [{min(values):.3f}]".replace("0.", ".")
        for values in ([row[law] for row in rows] for law in (*LAWS, "auto"))
    ]
    return " | ".join([*cells, f"{laws.count('tangent')} of {len(laws)}"])


def main() -> None:
    """Print the table."""
    print("| data | n | noise | isotropic | tangent | auto | tangent chosen |\n|---|---|---|---|---|---|---|")
    for setting in settings():
        cells = by_law(*choice(setting, range(SAMPLES)))
        print(f"| {SHEETS.get(setting.name, setting.name)} | {setting.n:,} | {setting.noise:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
