"""36 distributions whose true coordinates are known, for tests of verdicts (`answers`) and of chosen maps (`choice`).

They were written down before an audit was run on any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse.csgraph import shortest_path

from docs.figures.believe.distributions import Distribution
from glle_engine.graph.neighbors import kneighbors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from docs.figures.believe.distributions import Array, Generator

    Draw = Callable[[Generator, int], "Points"]


class Points(NamedTuple):
    """Points of one sample, and what is true of them.

    Attributes
    ----------
    X : (n, d)
        The data.
    clean : (n, m)
        Coordinates without noise, whose distances say which points are neighbors.
    flat : (n, m) or None
        Coordinates whose Euclidean distances are the distances along the data. None: shortest paths through `clean`.
    group : (n,) int64 or None

    """

    X: Array
    clean: Array
    flat: Array | None = None
    group: NDArray[np.int64] | None = None

    def distances(self) -> Array:
        """Return the true distances (n, n) along the data.

        Two points that no path joins have 1.5 times the length of the longest path.
        """
        if self.flat is not None:
            return np.asarray(np.linalg.norm(self.flat[:, None] - self.flat[None], axis=2))
        indices, lengths = kneighbors(np.ascontiguousarray(self.clean, np.float64), min(10, len(self.X) - 1))[:2]
        graph = np.full((len(self.X),) * 2, np.inf)
        graph[np.arange(len(self.X))[:, None], indices] = lengths
        paths = shortest_path(np.minimum(graph, graph.T), directed=False)
        finite = paths[np.isfinite(paths)].max()
        return np.asarray(np.where(np.isfinite(paths), paths, 1.5 * finite))


@dataclass(frozen=True)
class Truth:
    """A distribution whose samples come with their true coordinates; `together` as in `Distribution`."""

    name: str
    kind: str
    n: int
    draw: Draw
    is_noise: bool = False
    together: int = 1

    def distribution(self) -> Distribution:
        """Return the distribution of the points and groups alone, as the audit's tests take it."""
        has_groups = self.draw(np.random.default_rng(0), 8).group is not None

        def groups(rng: Generator, n: int) -> NDArray[np.int64]:
            group = self.draw(rng, n).group
            assert group is not None
            return group

        return Distribution(
            self.name, self.n, lambda rng, n: self.draw(rng, n).X, is_noise=self.is_noise,
            label=groups if has_groups else None, together=self.together,
        )  # fmt: skip


def _known(number: int) -> Generator:
    """Return the generator for the parameters that all samples of the distribution with this number share."""
    return np.random.default_rng(2_026_000 + number)


def _frame(number: int, m: int, d: int) -> Array:
    """Return m orthonormal directions (m, d), the same for all samples of the distribution with this number."""
    return np.asarray(np.linalg.qr(_known(number).standard_normal((d, d)))[0][:m])


def _choose(rng: Generator, n: int, shares: tuple[float, ...]) -> NDArray[np.int64]:
    """Draw the group of each point (n,) with probabilities `shares`; if n allows it, each group has three points."""
    weights = np.array(shares) / sum(shares)
    group = rng.choice(len(shares), n, p=weights)
    if n >= 6 * len(shares):
        group[: 3 * len(shares)] = np.repeat(np.arange(len(shares)), 3)
    return group[rng.permutation(n)]


def _groups(number: int, shares: tuple[float, ...], d: int, apart: float, noise: float, inner: int = 2) -> Draw:
    """Return a sampler of groups, each of which is a Gaussian on a plane of `inner` dimensions, with noise."""
    centers = apart * _known(number).standard_normal((len(shares), d)) / np.sqrt(d)
    planes = [_frame(number * 100 + g, inner, d) for g in range(len(shares))]

    def draw(rng: Generator, n: int) -> Points:
        group = _choose(rng, n, shares)
        inside = rng.standard_normal((n, inner))
        clean = centers[group] + np.einsum("ni,nid->nd", inside, np.array(planes)[group])
        return Points(clean + noise * rng.standard_normal((n, d)), clean, clean, group)

    return draw


def _nested(number: int, outer: int, inner: int, d: int, near: float, noise: float) -> Draw:
    """Return a sampler of `outer` distant groups, each of `inner` groups that are closer together."""
    known = _known(number)
    centers = 9 * known.standard_normal((outer, d)) / np.sqrt(d)
    centers = np.repeat(centers, inner, axis=0) + near * known.standard_normal((outer * inner, d)) / np.sqrt(d)
    plane = _frame(number, 2, d)

    def draw(rng: Generator, n: int) -> Points:
        group = _choose(rng, n, (1.0,) * (outer * inner))
        clean = centers[group] + 0.7 * rng.standard_normal((n, 2)) @ plane
        return Points(clean + noise * rng.standard_normal((n, d)), clean, clean, group)

    return draw


def _surface(
    number: int, d: int, noise: float, place: Callable[[Array], Array], spans: tuple[float, ...], *, flat: bool = True
) -> Draw:
    """Return a sampler of a surface: `place` maps coordinates that are uniform within `spans` to points.

    `flat` says that distances of the coordinates are distances along the surface.
    """

    def draw(rng: Generator, n: int) -> Points:
        coordinates = rng.uniform(size=(n, len(spans))) * np.array(spans)
        clean = place(coordinates)
        X = clean @ _frame(number, clean.shape[1], d) + noise * rng.standard_normal((n, d))
        return Points(X, clean, coordinates if flat else None)

    return draw


def _scroll(coordinates: Array) -> Array:
    """Roll a sheet up by the arc length of a spiral with radius 1 + t / (2 pi)."""
    t = np.linspace(2.6, 2.6 * np.sqrt(1 + 12 * 0.9), 4000)
    lengths = np.concatenate([[0], np.cumsum(np.hypot(np.diff(t * np.cos(t)), np.diff(t * np.sin(t))))])
    angle = np.interp(coordinates[:, 0] / 12 * lengths[-1], lengths, t)
    scale = 12 / lengths[-1]
    return np.column_stack([scale * angle * np.cos(angle), scale * angle * np.sin(angle), coordinates[:, 1]])


def _wave(coordinates: Array) -> Array:
    """Bend a sheet along a sine, with the arc length as its first coordinate."""
    t = np.linspace(0, 4 * np.pi, 4000)
    lengths = np.concatenate([[0], np.cumsum(np.hypot(np.diff(t), np.diff(1.6 * np.sin(t))))])
    u = np.interp(coordinates[:, 0] / 10 * lengths[-1], lengths, t)
    scale = 10 / lengths[-1]
    return np.column_stack([scale * u, scale * 1.6 * np.sin(u), coordinates[:, 1]])


def _two_sheets(rng: Generator, n: int) -> Points:
    """Return two parallel sheets, .6 apart."""
    side, coordinates = rng.integers(0, 2, n), rng.uniform(size=(n, 2)) * np.array([6, 4])
    clean = np.column_stack([coordinates, 0.6 * side])
    return Points(clean @ _frame(11, 3, 6) + 0.03 * rng.standard_normal((n, 6)), clean, clean, side)


def _ring(coordinates: Array) -> Array:
    return 2 * np.column_stack(
        [np.cos(coordinates[:, 0]), np.sin(coordinates[:, 0]), 0.4 * np.cos(2 * coordinates[:, 0])]
    )


def _cylinder(coordinates: Array) -> Array:
    return np.column_stack([np.cos(coordinates[:, 0]), np.sin(coordinates[:, 0]), coordinates[:, 1]])


def _ball(rng: Generator, n: int) -> Points:
    directions = rng.standard_normal((n, 3))
    clean = 2 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return Points(clean @ _frame(14, 3, 9) + 0.06 * rng.standard_normal((n, 9)), clean)


def _tree(number: int, branches: int, d: int, noise: float) -> Draw:
    """Return a trunk from which branches leave at known heights; distances are along the tree."""
    directions = _frame(number, branches + 1, d)
    heights = np.linspace(1, 3, branches)

    def draw(rng: Generator, n: int) -> Points:
        branch, t = _choose(rng, n, (2.0, *(1.0,) * branches)), rng.uniform(size=n)
        trunk = np.where(branch == 0, 4 * t, np.concatenate([[0], heights])[branch])
        clean = trunk[:, None] * directions[0] + (np.where(branch > 0, 2.5 * t, 0))[:, None] * directions[branch]
        return Points(clean + noise * rng.standard_normal((n, d)), clean, None, branch)

    return draw


def _cells(number: int, kinds: tuple[float, ...], genes: int, depth: float) -> Draw:
    """Return a sampler of gene expression: log counts of cells of several kinds, with a gradient within each kind."""
    known = _known(number)
    base, marks = known.gamma(0.6, 2.0, genes), 1.1 * known.standard_normal((len(kinds), genes))
    program = 0.5 * known.standard_normal(genes) * (known.uniform(size=genes) < 0.2)

    def draw(rng: Generator, n: int) -> Points:
        group, state = _choose(rng, n, kinds), rng.uniform(-1, 1, n)
        clean = np.log1p(depth * base * np.exp(marks[group] + state[:, None] * program))
        size = rng.gamma(8, 1 / 8, (n, 1))
        counts = rng.poisson(size * np.expm1(clean))
        return Points(np.log1p(counts / size), clean, clean, group)

    return draw


def _words(rng: Generator, n: int) -> Points:
    """Return counts of 400 words by mixtures of four topics."""
    topics = _known(17).dirichlet([0.08] * 400, 4) * 0.9 + 0.1 / 400
    use = rng.dirichlet([0.3] * 4, n)
    clean = np.sqrt(use @ topics)
    counts = np.array([rng.multinomial(160, p / p.sum()) for p in use @ topics])
    return Points(np.sqrt(counts / 160), clean, clean, use.argmax(axis=1).astype(np.int64))


def _pictures(rng: Generator, n: int) -> Points:
    """Return pictures of 14 x 14 pixels of a bar at some angle and height."""
    grid = np.linspace(-1, 1, 14)
    x, y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    angle, height = rng.uniform(-1.2, 1.2, n)[:, None], rng.uniform(-0.5, 0.5, n)[:, None]
    clean = np.exp(-((np.cos(angle) * (y - height) - np.sin(angle) * x) ** 2) / 0.04)
    return Points(clean + 0.1 * rng.standard_normal(clean.shape), clean)


def _signs(rng: Generator, n: int) -> Points:
    """Return pictures of five signs, moved and scaled."""
    grid = np.linspace(-1, 1, 12)
    x, y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    group = _choose(rng, n, (1.0,) * 5)
    u, v = rng.uniform(-0.15, 0.15, (2, n, 1))
    r = rng.uniform(0.8, 1.1, (n, 1))
    a, b = (x - u) / r, (y - v) / r
    shapes = [abs(a), abs(b), abs(a - b) / 1.4, abs(np.hypot(a, b) - 0.6), np.minimum(abs(a), abs(b))]
    clean = np.exp(-(np.choose(group[:, None], shapes) ** 2) / 0.03)
    return Points(clean + 0.15 * rng.standard_normal(clean.shape), clean, clean, group)


def _ribbon_and_groups(rng: Generator, n: int) -> Points:
    """Return a bent ribbon with half of the points, and two groups beside it."""
    group = _choose(rng, n, (2.0, 1.0, 1.0))
    t, w = rng.uniform(0, np.pi, n), rng.uniform(0, 1, n)
    ribbon = np.column_stack([3 * np.cos(t), 3 * np.sin(t), w, 0 * t])
    blob = np.array([[0, 0, 0, 0], [0, 0, 0, 4.0], [0, 0.5, 0, -4.0]])[group]
    blob = blob + 0.4 * rng.standard_normal((n, 4)) * np.array([1, 1, 1, 0])
    clean = np.where((group == 0)[:, None], ribbon, blob)
    return Points(clean @ _frame(20, 4, 10) + 0.08 * rng.standard_normal((n, 10)), clean, None, group)


def _sheet_and_rare(share: float) -> Draw:
    """Return a sheet, and a rare group at some height above it."""

    def draw(rng: Generator, n: int) -> Points:
        group = _choose(rng, n, (1 - share, share))
        coordinates = rng.uniform(size=(n, 2)) * np.array([4, 3])
        spot = np.array([2.0, 1.5, 2.0]) + 0.12 * rng.standard_normal((n, 3))
        clean = np.where((group == 1)[:, None], spot, np.column_stack([coordinates, 0.2 * coordinates[:, 0] ** 2 / 4]))
        return Points(clean @ _frame(21, 3, 8) + 0.05 * rng.standard_normal((n, 8)), clean, clean, group)

    return draw


def _traits(number: int, traits: int, items: int, noise: float) -> Draw:
    """Return answers on seven levels by some traits."""
    loadings = _known(number).standard_normal((traits, items)) / np.sqrt(traits)

    def draw(rng: Generator, n: int) -> Points:
        clean = rng.standard_normal((n, traits))
        X = np.digitize(clean @ loadings + noise * rng.standard_normal((n, items)), np.linspace(-2, 2, 6))
        return Points(X.astype(float), clean @ loadings, clean @ loadings)

    return draw


def _repeated(number: int, copies: int, groups: int) -> Draw:
    """Return repeated rows of subjects, in order; without groups the subjects are noise."""
    centers = 7 * _known(number).standard_normal((groups, 12)) / np.sqrt(12)

    def draw(rng: Generator, n: int) -> Points:
        subjects = -(-n // copies)
        group = rng.integers(0, groups, subjects)
        true = (groups > 1) * centers[group] + 0.6 * rng.standard_normal((subjects, 12))
        clean = np.repeat(true, copies, axis=0)[:n]
        kinds = np.repeat(group, copies)[:n] if groups > 1 else None
        return Points(clean + 0.2 * rng.standard_normal((n, 12)), clean, clean, kinds)

    return draw


def _walks(rng: Generator, n: int) -> Points:
    """Return series of 20 rows that wander slowly."""
    steps, clean = rng.standard_normal((n, 3)), np.zeros((n, 3))
    for row, step in enumerate(steps):
        clean[row] = 2 * step if row % 20 == 0 else 0.92 * clean[row - 1] + 0.4 * step
    return Points(clean @ _frame(24, 3, 9) + 0.2 * rng.standard_normal((n, 9)), clean, clean)


def _noise(name: str, n: int, sample: Callable[[Generator, int], Array], together: int = 1) -> Truth:
    def draw(rng: Generator, n: int) -> Points:
        X = np.asarray(sample(rng, n), np.float64)
        return Points(X, X, X)

    return Truth(name, "noise", n, draw, is_noise=True, together=together)


TRUTHS = (
    Truth("four groups, equal", "groups", 300, _groups(1, (1, 1, 1, 1), 12, 7, 0.4)),
    Truth("six groups, unequal", "groups", 420, _groups(2, (30, 25, 20, 12, 8, 5), 16, 8, 0.5)),
    Truth("ten groups, close", "groups", 500, _groups(3, (1,) * 10, 20, 7, 0.6, 3)),
    Truth("three groups, few points", "groups", 105, _groups(4, (1, 1, 1), 30, 7, 0.5)),
    Truth("three groups and one of 1 %", "rare groups", 1200, _groups(5, (33, 33, 33, 1), 10, 9, 0.4)),
    Truth("two groups and one of 2 %", "rare groups", 600, _groups(6, (49, 49, 2), 8, 9, 0.4)),
    Truth("a sheet and 2 % above it", "rare groups", 800, _sheet_and_rare(0.02)),
    Truth("cells with a rare kind", "rare groups", 900, _cells(7, (40, 30, 28, 2), 60, 4.0)),
    Truth("two levels, 2 x 3", "nested groups", 360, _nested(8, 2, 3, 15, 3.6, 0.3)),
    Truth("two levels, 3 x 3", "nested groups", 540, _nested(9, 3, 3, 20, 4.2, 0.35)),
    Truth("scroll", "sheets", 600, _surface(10, 7, 0.05, _scroll, (12, 4))),
    Truth("waved sheet", "sheets", 500, _surface(12, 8, 0.06, _wave, (10, 4))),
    Truth("waved sheet, many points", "sheets", 3000, _surface(12, 8, 0.06, _wave, (10, 4))),
    Truth("two parallel sheets", "sheets", 500, _two_sheets),
    Truth("flat sheet in 20", "sheets", 300, _surface(13, 20, 0.15, lambda position: position, (5, 3))),
    Truth("bent ring", "closed surfaces", 250, _surface(15, 6, 0.08, _ring, (2 * np.pi,), flat=False)),
    Truth("cylinder", "closed surfaces", 450, _surface(16, 7, 0.06, _cylinder, (2 * np.pi, 3), flat=False)),
    Truth("sphere in 9", "closed surfaces", 400, _ball),
    Truth("tree of three branches", "trajectories", 350, _tree(18, 3, 12, 0.12)),
    Truth("tree of five branches", "trajectories", 600, _tree(19, 5, 25, 0.12)),
    Truth("cells of five kinds", "counts", 450, _cells(22, (30, 25, 20, 15, 10), 80, 3.0)),
    Truth("cells of eight kinds, shallow", "counts", 640, _cells(23, (1,) * 8, 120, 1.2)),
    Truth("words of four topics", "words", 300, _words),
    Truth("pictures of a bar", "pictures", 350, _pictures),
    Truth("pictures of five signs", "pictures", 400, _signs),
    Truth("ribbon and two groups", "mixed", 450, _ribbon_and_groups),
    Truth("answers by two traits", "mixed", 260, _traits(25, 2, 24, 0.7)),
    Truth("answers by three traits", "mixed", 180, _traits(26, 3, 40, 0.9)),
    Truth("fourfold rows of three groups", "repeated rows", 360, _repeated(27, 4, 3), together=4),
    Truth("walks of 20 rows", "repeated rows", 400, _walks, together=20),
    _noise("normal, 25", 240, lambda rng, n: rng.standard_normal((n, 25))),
    _noise("gamma, 9", 400, lambda rng, n: rng.gamma(0.8, 1, (n, 9))),
    _noise("counts, 45", 300, lambda rng, n: rng.poisson(np.linspace(0.3, 5, 45), (n, 45))),
    _noise("uniform, 300, few", 90, lambda rng, n: rng.uniform(size=(n, 300))),
    _noise("triangular, 5", 1000, lambda rng, n: rng.triangular(0, 0.3, 1, (n, 5))),
    Truth("sixfold rows of noise", "noise", 360, _repeated(28, 6, 1), is_noise=True, together=6),
)
"""Eleven kinds, of 90 to 3,000 points."""
