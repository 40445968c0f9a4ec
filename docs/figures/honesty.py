"""Is the spread honest? Draws and half-samples against LLE's own sampling spread (`make honesty`).

The truth is made by brute force. *noise*: the points stay where they are on the sheet, their noise is drawn again.
*points*: 300 probes stay, noise included, all other points are drawn again. Each replicate is embedded and turned to
the embedding of the base data; a point's true spread is that over replicates.

rho: Spearman's correlation of the two spreads over points. ratio: of their medians. coverage: share of points whose
mean place over replicates lies in the 90 % ellipse around the base embedding. bias: share of points whose mean place
over replicates is further from the sheet's true coordinates, mapped affinely, than one true spread: there no spread
around LLE tells the truth.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2, spearmanr

from glle_engine import FitSpec, fit, manifolds
from glle_engine.alignment import procrustes_rotation
from glle_engine.calibration import calibrate, half_samples
from glle_engine.summary import generalized_procrustes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.spec import Noise

N, PROBES, SEED = 2000, 300, 0
ELLIPSE = float(chi2.ppf(0.9, 2))


@dataclass(frozen=True)
class Setting:
    """A sheet with relative noise, in so many features."""

    sheet: str
    noise: float
    features: int

    def __str__(self) -> str:
        return f"{self.sheet}, {self.features} features, noise {self.noise:g}"

    def data(self, seed: int, n: int = N) -> NDArray[np.float64]:
        """Return a sample; its rotation into many features does not depend on the seed."""
        X = manifolds.make(self.sheet, n, seed=seed).X
        turn = np.linalg.qr(np.random.default_rng(7).standard_normal((self.features, self.features)))[0][:3]
        X = X @ turn if self.features > 3 else X
        radius = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        return np.asarray(X + self.noise * radius * np.random.default_rng([seed, 3]).standard_normal(X.shape))

    def noise_redrawn(self, count: int) -> Iterator[NDArray[np.float64]]:
        """Yield the base points with fresh noise."""
        still = Setting(self.sheet, 0.0, self.features).data(SEED)
        radius = np.sqrt(((still - still.mean(axis=0)) ** 2).sum(axis=1).mean())
        for j in range(count):
            yield still + self.noise * radius * np.random.default_rng([SEED, 4, j]).standard_normal(still.shape)

    def points_redrawn(self, count: int) -> Iterator[NDArray[np.float64]]:
        """Yield the probes of the base data among fresh points."""
        probes = self.data(SEED)[:PROBES]
        for j in range(count):
            yield np.concatenate([probes, self.data(1000 + j, N - PROBES)])


def moments(places: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (n, p), covariance (n, p, p) and spread (n,) of aligned places (m, n, p)."""
    mean, aligned = generalized_procrustes(places)
    off = aligned - mean
    covariance = np.einsum("mni,mnj->nij", off, off) / (len(places) - 1)
    return mean, covariance, np.sqrt(np.trace(covariance, axis1=1, axis2=2))


def turned(Y: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn and shift Y (m, 2) to the reference; the probes alone are not centred."""
    centred = Y - Y.mean(axis=0)
    target = reference - reference.mean(axis=0)
    return np.asarray(centred @ procrustes_rotation(centred, target) + reference.mean(axis=0))


def judge(setting: Setting, noise: Noise, replicates: int, draws: int) -> None:
    """Print the rows of one setting."""
    X = setting.data(SEED)
    posterior = fit(X, noise=noise, disconnected="bridge")
    reference, spec = posterior.embedding, posterior.spec
    found = calibrate(posterior, X)
    candidates = {
        "draws, scale 1": np.stack([d.embedding for d in posterior.draws(draws)]),
        f"draws, scale {found.scale:.3g}{' (saturated)' if found.saturated else ''}": np.stack(
            [d.embedding for d in posterior.draws(draws, scale=found.scale)]
        ),
        "half-samples": half_samples(X, spec, reference, draws // 2),
    }
    truths = {"points": (setting.points_redrawn(replicates), PROBES)}
    if setting.noise:
        truths["noise"] = (setting.noise_redrawn(replicates), N)
    for truth, (samples, kept) in truths.items():
        places = np.stack([turned(_embedded(Z, spec)[:kept], reference[:kept]) for Z in samples])
        mean, _, true = moments(places - reference[:kept].mean(axis=0))
        mean = mean + reference[:kept].mean(axis=0)
        bias = _bias(mean, manifolds.make(setting.sheet, N, seed=SEED).coordinates[:kept])
        for title, stack in candidates.items():
            aligned = np.stack([turned(Y[:kept], reference[:kept]) for Y in stack])
            _, covariance, spread = moments(aligned - reference[:kept].mean(axis=0))
            off = mean - reference[:kept]
            inside = np.einsum("ni,ni->n", off, np.linalg.solve(covariance, off[:, :, None])[:, :, 0]) <= ELLIPSE
            rho = float(spearmanr(spread, true).statistic)
            ratio = float(np.median(spread) / np.median(true))
            print(
                f"| {setting} | {noise} | {truth} | {title} | {rho:.2f} | {ratio:.2f} | {inside.mean():.2f} | "
                f"{(bias > true).mean():.2f} |",
                flush=True,
            )


def _embedded(X: NDArray[np.float64], spec: FitSpec) -> NDArray[np.float64]:
    return fit(X, **spec.to_dict()).embedding


def _bias(mean: NDArray[np.float64], coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
    design = np.concatenate([coordinates, np.ones((len(coordinates), 1))], axis=1)
    return np.asarray(np.linalg.norm(mean - design @ np.linalg.lstsq(design, mean, rcond=None)[0], axis=1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=60)
    parser.add_argument("--draws", type=int, default=120)
    parser.add_argument("--laws", nargs="+", default=["isotropic", "tangent"], choices=["isotropic", "tangent"])
    options = parser.parse_args()
    print("| data | noise of the law | truth | candidate | rho | ratio | coverage | bias |")
    print("|---|---|---|---|---|---|---|---|")
    for features, noises in ((3, (0.0, 0.01, 0.03)), (20, (0.01,))):
        for noise in noises:
            for sheet in manifolds.NAMES:
                for law in options.laws:
                    judge(Setting(sheet, noise, features), law, options.replicates, options.draws)


if __name__ == "__main__":
    main()
