"""Other laws of the draws: local scale, random n_neighbors, random frames, adaptive neighborhoods.

Each law gives a stack of embeddings in the place of the calibrated draws. It is compared with the truth alone, and as
the first of the four estimates of the ensemble. `python -m docs.figures.honesty.laws` prints the table of
docs/explanation/honesty.md in a quarter of an hour on one core.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from docs.figures.honesty import measures
from docs.figures.honesty.settings import Population, settings
from glle_engine import fit
from glle_engine.graph.neighbors import kneighbors
from glle_engine.graph.relations import located
from glle_engine.posterior.draw import DrawKey
from glle_engine.posterior.sampler import Sampler
from glle_engine.posterior.spread.calibration import calibrate
from glle_engine.posterior.spread.ensemble import combine
from glle_engine.posterior.spread.resampling import LARGEST_K, SMALLEST_K, STREAMS, resamples
from glle_engine.posterior.summary import generalized_procrustes
from glle_engine.weights.constrained import constrained_law
from glle_engine.weights.tangent import frame_weights, frames_at, pooled_neighbors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine import Posterior

    Stack = NDArray[np.float64]  # (m, n, 2)
    Spreads = dict[str, NDArray[np.float64]]

POINTS, PROBES = 600, 200
SAMPLES, DATA, DRAWS, RESAMPLES = 20, 2, 40, 20
PARTS = 10  # of the draws, each with its own n_neighbors or frames
SMOOTHED = 30  # nearest points whose ratios are averaged
DRAWN, ENSEMBLE = "draws, calibrated", "ensemble"
KNOWN = ("Swiss roll, noise .01", "S-curve, noise .03", "tree of five", "wine-like", "three clusters, 50-D, apart")
HELD_OUT = ("bowl", "roll with hole", "cube", "eight clusters")


def local_scale(drawn: Stack, halves: Stack, reference: NDArray[np.float64]) -> Stack:
    """Return draws, aligned, whose deviations at a point are those of half-samples on average around it.

    The factor of point i is exp of the mean of log(half-sample spread / draw spread) over its `SMOOTHED` nearest points
    in the reference (n, 2).
    """
    aligned, sampled = (generalized_procrustes(stack)[1] for stack in (drawn, halves))
    ratio = np.log(measures.spread(measures.covariance(sampled)) / measures.spread(measures.covariance(aligned)))
    near = kneighbors(np.ascontiguousarray(reference), SMOOTHED)[0]
    factor = np.exp((ratio + ratio[near].sum(axis=1)) / (1 + SMOOTHED))
    mean = aligned.mean(axis=0)
    return np.asarray(mean + factor[:, None] * (aligned - mean))


def random_neighbors(posterior: Posterior, X: NDArray[np.float64], scale: float, count: int) -> Stack:
    """Return draws of `PARTS` posteriors with n_neighbors log-uniform on [.7 k, 1.5 k]."""
    k, rng = posterior.spec.n_neighbors, np.random.default_rng([0, 21])
    drawn: list[NDArray[np.float64]] = []
    for part in range(PARTS):
        other = max(posterior.spec.n_components + 1, round(k * SMALLEST_K * (LARGEST_K / SMALLEST_K) ** rng.random()))
        fitted = fit(X, replace(posterior.spec, n_neighbors=other, disconnected="bridge"))
        drawn += _drawn(fitted, scale, len(range(part, count, PARTS)), first=part * count)
    return np.stack(drawn)


def random_frames(posterior: Posterior, X: NDArray[np.float64], scale: float, count: int) -> Stack:
    """Return draws of the tangent law whose frames are those of a random half of the pooled points, `PARTS` times.

    The posterior has tangent noise. Mean and covariance follow from the frames; graph and solver stay.
    """
    data, spec, rng = located(X, posterior.spec), posterior.spec, np.random.default_rng([0, 22])
    assert isinstance(data, np.ndarray)
    pooled = kneighbors(data, pooled_neighbors(len(data), spec.n_neighbors))[0]
    drawn: list[NDArray[np.float64]] = []
    for part in range(PARTS):
        chosen = np.ascontiguousarray(rng.permuted(pooled, axis=1)[:, : pooled.shape[1] // 2])
        frames = frames_at(data, data, chosen, spec.n_components)
        weights = frame_weights(data, posterior.neighbors, frames, spec.reg)
        law, _ = constrained_law(data, posterior.neighbors, posterior.embedding, weights, spec, frames=frames)
        sampler = Sampler(law, posterior.eigenproblem, posterior.lane_solver, posterior.embedding)
        keys = [DrawKey(part * count + index, 0, scale) for index in range(len(range(part, count, PARTS)))]
        drawn += [draw.embedding for draw in sampler.draws(keys, "posterior", "procrustes")]
    return np.stack(drawn)


def adaptive(posterior: Posterior, X: NDArray[np.float64], scale: float, count: int) -> Stack:
    """Return draws of the posterior with adaptive neighborhoods."""
    spec = replace(posterior.spec, neighborhoods="adaptive", disconnected="bridge")
    return np.stack(_drawn(fit(X, spec), scale, count))


def _drawn(posterior: Posterior, scale: float, count: int, first: int = 0) -> list[NDArray[np.float64]]:
    return [draw.embedding for draw in posterior.draws(count, first=first, scale=scale)]


def stacks(posterior: Posterior, X: NDArray[np.float64]) -> tuple[dict[str, Stack], list[Stack]]:
    """Return the draws of each law, and the resamples of the three streams."""
    reference = posterior.embedding
    sampled = [resamples(X, posterior.spec, reference, RESAMPLES, stream=stream) for stream in STREAMS]
    scale = calibrate(posterior, X, n_half_samples=RESAMPLES, halves=sampled[0]).scale
    drawn = np.stack(_drawn(posterior, scale, DRAWS))
    tangent = fit(X, replace(posterior.spec, noise="tangent", disconnected="bridge"))
    own = calibrate(tangent, X, n_half_samples=RESAMPLES, halves=sampled[0]).scale
    return {
        DRAWN: drawn,
        "local scale": local_scale(drawn, sampled[0], reference),
        "random n_neighbors": random_neighbors(posterior, X, scale, DRAWS),
        "tangent law": np.stack(_drawn(tangent, own, DRAWS)),
        "tangent law, random frames": random_frames(tangent, X, own, DRAWS),
        "adaptive neighborhoods": adaptive(posterior, X, scale, DRAWS),
    }, sampled


def spreads(posterior: Posterior, X: NDArray[np.float64], kept: int) -> Spreads:
    """Return the spread of each law alone, of the ensemble, and of the ensemble with each law for its draws."""
    laws, sampled = stacks(posterior, X)
    reference = measures.centred(posterior.embedding, kept)
    parts = [measures.centred(stack, kept) for stack in sampled]
    found: Spreads = {}
    for law, stack in laws.items():
        together = combine(measures.centred(stack, kept), parts[0], parts[1], parts[2], reference)
        found[law] = together.draw_spread
        found[ENSEMBLE if law == DRAWN else f"ensemble, {law}"] = together.spread
    return found


def judged(setting: Population) -> Iterator[tuple[dict[str, tuple[float, float]], float]]:
    """Yield rank correlation and ratio of each candidate, and the ceiling, for each sample that is the data."""
    drawn = [np.ascontiguousarray(setting.sample(j)) for j in range(SAMPLES + 1)]
    posteriors = [fit(X, disconnected="bridge", **setting.options) for X in drawn]
    places = np.stack([posterior.embedding[: setting.probes] for posterior in posteriors])
    for i in range(DATA):
        others, _ = measures.turned(np.delete(places, i, axis=0), places[i], setting.probes)
        true = measures.spread(measures.covariance(others))
        found = spreads(posteriors[i], drawn[i], setting.probes)
        yield (
            {
                law: (measures.rank_correlation(spread, true), float(np.median(spread) / np.median(true)))
                for law, spread in found.items()
            },
            float(np.sqrt(max(0.0, measures.reliability(others)))),
        )


def smaller(words: tuple[str, ...]) -> list[Population]:
    """Return the settings whose names begin with a word, with `POINTS` points."""
    return [
        replace(setting, n=POINTS, probes=PROBES)
        for word in words
        for setting in settings()
        if isinstance(setting, Population) and setting.name.startswith(word) and "tangent" not in setting.name
    ]


def table(rows: dict[str, list[tuple[dict[str, tuple[float, float]], float]]]) -> str:
    """Return the table of candidates: rho of known and held-out settings, wins, ratio; rows are by setting."""
    settings_of = {"known": smaller(KNOWN), "held out": smaller(HELD_OUT)}
    lines = [
        "| draws by | rho, known settings | rho, held out | held out, better than the first | ratio |",
        "|---" * 5 + "|",
    ]
    candidates = list(next(iter(rows.values()))[0][0])
    alone = [law for law in candidates if not law.startswith(ENSEMBLE)]
    for law in [*alone, *(law for law in candidates if law.startswith(ENSEMBLE))]:
        base = ENSEMBLE if law.startswith(ENSEMBLE) else DRAWN

        def mean(setting: Population, law: str = law) -> float:
            return float(np.mean([values[law][0] for values, _ in rows[setting.name]]))

        known, out = ([mean(setting) for setting in group] for group in settings_of.values())
        better = sum(mean(setting) > mean(setting, base) for setting in settings_of["held out"])
        ratio = np.exp(np.mean([np.log(values[law][1]) for group in rows.values() for values, _ in group]))
        wins = "" if law == base else f"{better} of {len(out)}"
        lines.append(
            f"| {law} | {np.mean(known):.2f} | {np.mean(out):.2f} | {wins} | {ratio:.2f} |".replace(" 0.", " .")
        )
    ceilings = [
        np.mean([ceiling for setting in group for _, ceiling in rows[setting.name]]) for group in settings_of.values()
    ]
    return "\n".join([*lines, f"| ceiling | {ceilings[0]:.2f} | {ceilings[1]:.2f} | | |".replace(" 0.", " .")])


def main() -> None:
    """Print each setting, then the table."""
    rows: dict[str, list[tuple[dict[str, tuple[float, float]], float]]] = {}
    for setting in smaller((*KNOWN, *HELD_OUT)):
        rows[setting.name] = list(judged(setting))
        shown = {law: np.mean([values[law][0] for values, _ in rows[setting.name]]) for law in rows[setting.name][0][0]}
        print(setting.name, {law: round(float(rho), 2) for law, rho in shown.items()}, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
