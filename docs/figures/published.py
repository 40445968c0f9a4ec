"""Numbers and figure of docs/explanation/published.md (`python -m docs.figures.published`)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression

import glle_engine
from glle_engine import manifolds
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior

IMAGES = Path(__file__).resolve().parent.parent / "images"
fit = partial(glle_engine.fit, n_neighbors=10)
ITERATIONS = (1, 2, 3, 5, 10, 20, 50)


def shares(posterior: Posterior, X: NDArray[Any]) -> list[float]:
    """Return the R^2 of linear regressions of a draw's coordinates on the data."""
    columns = posterior.draw(0, align="none").embedding.T
    return [float(LinearRegression().fit(X, column).score(X, column)) for column in columns]


def sigma_after(X: NDArray[Any], iterations: int, tol: float = 1e-300) -> NDArray[np.float64]:
    """Return the variances sigma_i (n,) of Eq. 29 after this number of iterations of EM."""
    values = fit(X, variant="published", max_iter=iterations, tol=tol).sigma
    assert values is not None
    return values


def row_sums(posterior: Posterior, draws: int = 8) -> list[float]:
    """Return the smallest and the largest sum of a point's weights over some draws; the paper wants 1."""
    sums = np.concatenate([posterior.weights(i).sum(axis=1) for i in range(draws)])
    return [float(sums.min()), float(sums.max())]


def sigma_by_plain_inverse(X: NDArray[Any], k: int, iterations: int) -> list[float]:
    """Return the median |sigma_i| after each iteration of Eq. 21-29, with an inverse in place of the pseudo-inverse.

    The matrix is singular, so that its inverse consists of rounding errors; numpy raises only at a pivot of exactly 0.
    """
    n, d = X.shape
    raw = X[np.sort(kneighbors(X, k)[0], axis=1)].transpose(0, 2, 1)
    gram, centered, sigma, medians = raw @ raw.transpose(0, 2, 1), X - X.mean(axis=0), np.ones(n), []
    for _ in range(iterations):
        gain = sigma[:, None, None] * raw.transpose(0, 2, 1) @ np.linalg.inv(sigma[:, None, None] * gram)
        mean = (gain @ centered[:, :, None])[:, :, 0]
        covariance = sigma[:, None, None] * (np.eye(k) - gain @ raw)
        scatter = centered.T @ centered - 2 * np.einsum("ndk,nk,ne->de", raw, mean, centered)
        scatter += (raw @ covariance @ raw.transpose(0, 2, 1)).sum(axis=0)
        explained = np.einsum("nij,ji->n", np.linalg.inv(gram), scatter / n)
        sigma = (explained + np.trace(covariance.sum(axis=0)) / n) / (d + k)
        medians.append(float(np.median(np.abs(sigma))))
    return medians


def curved_sheet(n: int) -> NDArray[Any]:
    """Return n points of a curved sheet in 25 dimensions, with some noise."""
    coordinates = np.random.default_rng(5).uniform(-1, 1, (n, 2))
    directions = np.random.default_rng(6).standard_normal((2, 25))
    return np.asarray(np.sin(coordinates @ directions) + 0.01 * np.random.default_rng(7).standard_normal((n, 25)))


def numbers() -> dict[str, Any]:
    """Measure the numbers that the page states, by the name of the fact."""
    curve = manifolds.make("s_curve", 1500, seed=0).X
    digits = load_digits().data
    sigma = {}
    for iterations in ITERATIONS:
        values = sigma_after(curve, iterations)
        sigma[iterations] = {"median": float(np.median(values)), "negative": int((values < 0).sum())}
    published = fit(curve, variant="published")
    constrained = fit(curve)
    wide = fit(digits, variant="published")
    first, second = wide.draw(0).embedding, wide.draw(1).embedding
    direct = fit(curve, variant="published", method="direct")
    shifted = fit(curve + 10.0, variant="published")
    corrected = fit(curve, variant="published", covariance="full-corrected", max_iter=1000)
    sheet = curved_sheet(300)
    return {
        "sigma": sigma,
        "sigma_by_plain_inverse": sigma_by_plain_inverse(sheet, 10, 9),
        "sigma_by_pseudo_inverse": [
            float(np.median(np.abs(sigma_after(sheet, iterations, 0)))) for iterations in range(1, 10)
        ],
        "full-corrected": {
            "iterations": corrected.diagnostics.figures["iterations"],
            "r_squared": shares(corrected, curve),
            "row_sums": row_sums(corrected),
        },
        "r_squared": {"published": shares(published, curve), "constrained": shares(constrained, curve)},
        "identical_draws": {
            "largest_difference": float(np.abs(first - second).max()),
            "full_rank": wide.diagnostics.figures["full_rank_neighborhoods"],
            "n": len(digits),
        },
        "singular_precisions": {"count": direct.diagnostics.figures["singular_precisions"], "n": len(curve)},
        "row_sums": {
            "published em": row_sums(published),
            "published direct": row_sums(direct),
            "constrained em": row_sums(constrained),
        },
        "translation": {
            "published": float(np.abs(published.mean - shifted.mean).max()),
            "constrained": float(np.abs(constrained.mean - fit(curve + 10.0).mean).max()),
        },
    }


def picture(path: Path) -> None:
    """Save the figure: sigma_i over the iterations, the data from the side, a published and a constrained draw."""
    sheet = manifolds.make("s_curve", 1500, seed=0)
    published, constrained = fit(sheet.X, variant="published"), fit(sheet.X)
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.1), layout="constrained")
    steps = range(1, 16)
    low, middle, high = np.transpose([np.quantile(sigma_after(sheet.X, step), [0.1, 0.5, 0.9]) for step in steps])
    axes[0].fill_between(steps, low, high, alpha=0.3, linewidth=0)
    axes[0].plot(steps, middle, marker=".")
    axes[0].axhline(0, color="black", linewidth=0.6)
    axes[0].set_xlabel("iteration")
    axes[0].set_title("the variances sigma_i of Eq. 29\n(median, 10 % and 90 %)", fontsize=9)
    style = {"c": sheet.coordinates[:, 0], "cmap": "Spectral", "s": 3, "linewidths": 0}
    views = {
        "the data from the side": sheet.X[:, [0, 2]],
        "a draw of the published em": published.draw(0, align="none").embedding,
        "a draw of the constrained em": constrained.draw(0).embedding,
    }
    for ax, (title, Y) in zip(axes[1:], views.items(), strict=True):
        ax.scatter(*Y.T, **style)
        ax.set_title(title, fontsize=9)
        ax.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> None:
    """Print the numbers and write the figure."""
    IMAGES.mkdir(exist_ok=True)
    print(json.dumps(numbers(), indent=1))
    picture(IMAGES / "published.png")


if __name__ == "__main__":
    main()
