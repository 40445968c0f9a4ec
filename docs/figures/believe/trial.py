"""Distributions of an independent trial, by an examiner who had not seen the project's; each was measured once."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_diabetes, load_sample_image

from docs.figures.believe.distributions import TURN, Distribution, parametric, rotate, sphere, tube

if TYPE_CHECKING:
    from collections.abc import Callable

    from docs.figures.believe.distributions import Array, Generator, Sampler

    LabeledSampler = Callable[[Generator, int], tuple[Array, Array]]


def _parameters(seed: int) -> Generator:
    """Return the generator of a distribution's parameters, which all its samples share."""
    return np.random.default_rng(770000 + seed)


def _mixed_small(rng: Generator, n: int) -> Array:
    columns = [rng.uniform(size=n), rng.exponential(size=n), rng.normal(size=n), rng.gamma(0.5, size=n)]
    return np.column_stack([*columns, rng.triangular(0, 0.2, 1, size=n)])


def _mixed_marginals(rng: Generator, n: int) -> Array:
    columns = [
        rng.beta(0.4, 0.4, n), rng.gamma(0.3, size=n), rng.laplace(size=n), rng.integers(0, 4, n),
        rng.geometric(0.3, n), rng.chisquare(1, n), rng.vonmises(0, 0.5, n), rng.gumbel(size=n),
        rng.choice([0.0, 1.0, 10.0], n, p=[0.7, 0.25, 0.05]), rng.weibull(0.8, n), rng.normal(size=n),
        rng.logistic(size=n),
    ]  # fmt: skip
    return np.column_stack(columns).astype(float)


def _two_modes(rng: Generator, n: int) -> Array:
    weights = _parameters(4).uniform(0.2, 0.8, 40)
    return (rng.uniform(size=(n, 40)) < weights) * 3.0 + rng.normal(size=(n, 40))


def _programs(rng: Generator, n: int) -> tuple[Array, Array]:
    """Return counts of 70 genes of cells with up to four programs, negative binomial."""
    known = _parameters(10)
    base, loads = known.gamma(1.0, 2.0, 70), known.gamma(0.35, 3.0, (4, 70))
    use, size = rng.dirichlet([0.35] * 4, n), np.exp(0.35 * rng.normal(size=n))
    mean = size[:, None] * (0.4 * base + 2.0 * use @ loads)
    return rng.poisson(mean * rng.gamma(2.0, 0.5, mean.shape)).astype(float), use.argmax(axis=1)


def _warped_curves(rng: Generator, n: int) -> Array:
    times = np.linspace(0, 1, 50)
    power, shift = np.exp(0.45 * rng.normal(size=(n, 1))), 0.06 * rng.normal(size=(n, 1))
    height, warped = 1 + 0.2 * rng.normal(size=(n, 1)), times[None] ** power + shift
    first, second = (np.exp(-(((warped - center) / width) ** 2)) for center, width in ((0.35, 0.1), (0.7, 0.08)))
    return height * first + 0.7 * second + 0.05 * rng.normal(size=(n, 50))


def _rotating_object(rng: Generator, n: int) -> Array:
    """Return images of 12 x 12 pixels of an L with a dot, turned about the center."""
    angle, grid = rng.uniform(0, 2 * np.pi, n)[:, None], np.linspace(-1, 1, 12)
    x, y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    u, v = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y

    def box(x: float, y: float, width: float, height: float) -> Array:
        return np.asarray(1 / (1 + np.exp(12 * np.maximum(abs(u - x) - width, abs(v - y) - height))))

    dot = np.exp(-((u - 0.4) ** 2 + (v - 0.4) ** 2) / 0.04)
    images = box(0.0, -0.5, 0.6, 0.15) + box(-0.45, 0.1, 0.15, 0.6) + 0.8 * dot
    return np.asarray(images + 0.05 * rng.normal(size=images.shape))


def _turn(points: Sampler, d: int, noise: float, seed: int) -> Sampler:
    return lambda rng, n: rotate(points(rng, n), d, noise, rng, _parameters(seed))


def _tree(rng: Generator, n: int) -> tuple[Array, Array]:
    """Return points along a trunk and two branches, one of which divides again."""
    directions = _parameters(13).normal(size=(5, 20)) / np.sqrt(20)
    branch = rng.choice(5, n, p=[0.3, 0.25, 0.15, 0.15, 0.15])
    along = rng.uniform(size=(n, 1)) * np.array([3, 3, 2, 2.5, 2])[branch][:, None]
    first = 3 * directions[0]
    second = first + 2 * directions[2]
    starts = np.array([np.zeros(20), first, first, second, second])[branch]
    return starts + along * directions[branch] + 0.12 * rng.normal(size=(n, 20)), branch


def _nested_clusters(rng: Generator, n: int) -> tuple[Array, Array]:
    known = _parameters(14)
    groups = np.repeat(6 * known.normal(size=(3, 15)) / np.sqrt(5), 3, axis=0)
    centers, sizes = groups + 1.5 * known.normal(size=(9, 15)) / np.sqrt(2), np.array([4, 2, 1, 3, 3, 3, 1, 1, 2.0])
    which = rng.choice(9, n, p=sizes / sizes.sum())
    return centers[which] + 0.6 * rng.normal(size=(n, 15)), which


def _overlapping_clusters(rng: Generator, n: int) -> tuple[Array, Array]:
    """Return four clusters at the corners of a square: independent features with two modes."""
    centers = np.zeros((4, 8))
    centers[1, 0], centers[2, 1], centers[3, :2] = 2.2, 2.2, 2.2
    which = rng.integers(0, 4, n)
    return centers[which] + rng.normal(size=(n, 8)), which


def _sheet_and_blob(rng: Generator, n: int) -> tuple[Array, Array]:
    which = (rng.uniform(size=n) < 0.3).astype(np.int64)
    u, v = rng.uniform(-2, 2, (2, n))
    sheet = np.column_stack([u, v, 0.7 * np.sin(1.5 * u), np.zeros((n, 3))]) + 0.05 * rng.normal(size=(n, 6))
    blob = np.array([3.2, 0, 1, 1, 0, 0]) + 0.5 * rng.normal(size=(n, 6))
    return np.where(which[:, None] == 1, blob, sheet), which


def _autoregressive(rng: Generator, n: int) -> Array:
    innovations = rng.normal(size=(n, 30))
    X = innovations.copy()
    for j in range(1, 30):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * innovations[:, j]
    return X


def _topics(rng: Generator, n: int) -> tuple[Array, Array]:
    topics = _parameters(15).dirichlet([0.12] * 120, 5) * 0.85 + 0.15 / 120
    use = rng.dirichlet([0.25] * 5, n)
    return np.array([rng.multinomial(90, p / p.sum()) for p in use @ topics]).astype(float), use.argmax(axis=1)


def _sensors(rng: Generator, n: int) -> Array:
    """Return what a grid of 6 x 6 sensors receives of a source at a random place."""
    grid = (np.arange(6) + 0.5) / 6
    sensors = np.array([(x, y) for x in grid for y in grid])
    places, power = rng.uniform(size=(n, 2)), rng.uniform(0.7, 1.3, n)
    squares = ((places[:, None] - sensors[None]) ** 2).sum(axis=2)
    return np.asarray(power[:, None] / (1 + squares / 0.05) + 0.03 * rng.normal(size=(n, 36)))


def _helix(rng: Generator, n: int) -> Array:
    t = rng.uniform(0, 4 * np.pi, n)
    return np.column_stack([np.cos(t), np.sin(t), t / 4]) + 0.12 * rng.normal(size=(n, 3))


def _low_rank_and_sparse(rng: Generator, n: int) -> Array:
    loadings = _parameters(17).normal(size=(3, 40)) * np.array([[1.0], [0.7], [0.5]])
    X = rng.normal(size=(n, 3)) @ loadings + 0.3 * rng.normal(size=(n, 40))
    return np.asarray(X + (rng.uniform(size=X.shape) < 0.04) * rng.normal(size=X.shape) * 6)


def _spectra(rng: Generator, n: int) -> Array:
    """Return mixtures of the spectra of three substances, with a baseline."""
    waves, known = np.linspace(0, 1, 300), _parameters(18)
    pure = []
    for _ in range(3):
        peaks = zip(known.uniform(0.3, 1, 4), known.uniform(0, 1, 4), known.uniform(0.01, 0.05, 4), strict=True)
        pure.append(sum(height * np.exp(-(((waves - center) / width) ** 2)) for height, center, width in peaks))
    mixed = rng.dirichlet([1.5] * 3, n) @ np.array(pure)
    return np.asarray(mixed + 0.1 * rng.normal(size=(n, 1)) * waves + 0.03 * rng.normal(size=(n, 300)))


@cache
def _photograph() -> tuple[Array, Array]:
    """Return the 6 x 6 patches of a photograph on a grid, and whether each is below its upper third."""
    gray = load_sample_image("china.jpg").mean(axis=2) / 255
    rows, columns = (axis.ravel() for axis in np.meshgrid(np.arange(0, 420, 12), np.arange(0, 634, 12), indexing="ij"))
    patches = [gray[row : row + 6, column : column + 6].ravel() for row, column in zip(rows, columns, strict=True)]
    return np.array(patches), (rows > 140).astype(np.int64)


def _patches(rng: Generator, n: int) -> tuple[Array, Array]:
    X, is_low = _photograph()
    chosen = rng.permutation(len(X))[:n]
    return X[chosen], is_low[chosen]


def _diabetes(rng: Generator, n: int) -> Array:
    X = load_diabetes(scaled=False).data
    return np.asarray(X[rng.permutation(len(X))[:n]])


def _labeled_distribution(name: str, n: int, sample: LabeledSampler, **options: Any) -> Distribution:
    return Distribution(
        name, n, lambda rng, n: sample(rng, n)[0], label=lambda rng, n: sample(rng, n)[1].astype(np.int64), **options
    )


def _noise_distribution(name: str, n: int, sample: Sampler) -> Distribution:
    return Distribution(name, n, sample, is_noise=True)


TRIAL = (
    _noise_distribution("mixed small", 60, _mixed_small),
    _noise_distribution(
        "Poisson counts", 200, lambda rng, n: 1.0 * rng.poisson(_parameters(1).uniform(0.4, 6, 30), (n, 30))
    ),
    _noise_distribution(
        "rare bits", 400, lambda rng, n: 1.0 * (rng.uniform(size=(n, 24)) < _parameters(2).uniform(0.08, 0.5, 24))
    ),
    _noise_distribution(
        "lognormal", 150, lambda rng, n: np.exp(rng.normal(size=(n, 200)) * _parameters(3).uniform(0.3, 1.1, 200))
    ),
    _noise_distribution("Student t3, 10", 500, lambda rng, n: rng.standard_t(3, (n, 10))),
    _noise_distribution("mixed marginals", 800, _mixed_marginals),
    _noise_distribution("Pareto 2.5, 3", 300, lambda rng, n: rng.pareto(2.5, (n, 3))),
    _noise_distribution("two modes each", 2000, _two_modes),
    _labeled_distribution("gene programs", 400, _programs),
    Distribution("warped curves", 200, _warped_curves),
    Distribution("rotating object", 300, _rotating_object),
    Distribution("torus", 600, _turn(parametric(partial(tube, radius=0.8), TURN, TURN), 6, 0.05, 11)),
    Distribution(
        "figure eight", 250, _turn(parametric(lambda a: (np.sin(a), np.sin(a) * np.cos(a)), TURN), 8, 0.04, 12)
    ),
    _labeled_distribution("tree", 500, _tree),
    _labeled_distribution("nested clusters", 450, _nested_clusters),
    _labeled_distribution("overlapping clusters", 160, _overlapping_clusters),
    _labeled_distribution("sheet and blob", 800, _sheet_and_blob),
    Distribution("autoregressive features", 350, _autoregressive),
    _labeled_distribution("topics", 600, _topics),
    Distribution("sensors", 400, _sensors),
    Distribution("noisy helix", 2000, _helix),
    Distribution(
        "4-ball", 700, _turn(lambda rng, n: sphere(rng, n, 4) * rng.uniform(size=(n, 1)) ** 0.25, 10, 0.05, 16)
    ),
    Distribution("low rank and sparse", 500, _low_rank_and_sparse),
    Distribution("wide spectra", 60, _spectra),
    Distribution("diabetes", 220, _diabetes, is_finite=True),
    _labeled_distribution("patches", 800, _patches, is_finite=True),
)
