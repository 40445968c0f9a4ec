"""All scores of embeddings by name (`SCORES`), with what each needs, and the function `score` that computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.base.arrays import array_of
from glle_engine.base.errors import DegenerateDataError, InvalidParameterError, InvalidShapeError
from glle_engine.base.parameters import check_integer
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.texts import Way
from glle_engine.base.validation import checked_matrix, require_same_length
from glle_engine.graph.neighbors import kneighbors
from glle_engine.metrics import pairs
from glle_engine.metrics.coranking import quality_curves
from glle_engine.metrics.gplvm import MAX_LIKELIHOOD_POINTS, fit_likelihood
from glle_engine.metrics.neighbor_count import kept_neighbors, kept_share
from glle_engine.metrics.ranks import affine_r_squared, continuity, disparity, residual_variance, trustworthiness

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["SCORES", "Score", "ScoreInputs", "default_scores", "neighborhood_hit", "possible_score", "score"]


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """What some scores need in addition to the data and the embedding.

    Attributes
    ----------
    score_neighbors : int
        The number of neighbors k for scores on neighborhoods.
    labels : (n,) array of integers or strings, optional
        The class of each point.
    truth : (n, q) float64, optional
        The true coordinates.
    on_progress
        Called with (done, total, stage) between blocks of work.

    """

    score_neighbors: int = 10
    labels: NDArray[np.generic] | None = None
    truth: NDArray[np.float64] | None = None
    on_progress: OnProgress = silent


@dataclass(frozen=True, kw_only=True)
class Score:
    """One score of embeddings: what it means, what it needs, and the function that computes it.

    Attributes
    ----------
    name : str
        Stable snake_case name.
    title : str
        Name of the score for people, such as "Residual variance".
    about : str
        Meaning, range and source of the score.
    needs : {"nothing", "labels", "truth"}
        What the score needs in addition to the data and the embedding.
    better : {"higher", "lower"}
        Whether higher or lower values are better.
    most_points : int or None
        The largest number of points that the score allows; None if only time limits it.
    largest_k : callable or None
        Called with n, returns the largest k that the score allows; None for scores without neighborhoods.
    growth : str
        How the computing time grows with n.
    reproducible : bool
        Whether the score has the same bits on every processor.
    by_default : bool
        Whether the score is computed if the caller names no scores.
    run : callable
        Called with data X (n, d), an embedding Y (n, p) and `ScoreInputs`, all of them checked; returns the score.

    """

    name: str
    title: str
    about: str
    needs: Literal["nothing", "labels", "truth"] = "nothing"
    better: Literal["higher", "lower"]
    most_points: int | None = None
    largest_k: Callable[[int], int] | None = None
    growth: str
    reproducible: bool = True
    by_default: bool = True
    run: Callable[[NDArray[np.float64], NDArray[np.float64], ScoreInputs], float]


def neighborhood_hit(Y: NDArray[np.float64], labels: NDArray[np.generic], n_neighbors: int = 10) -> float:
    """Return the mean share of a point's k nearest neighbors in an embedding Y (n, p) that have the point's label.

    The result is in [0, 1], and 1 is best (Paulovich, Nonato, Minghim, Levkowitz 2008, IEEE TVCG 14).
    """
    nearest, _ = kneighbors(Y, n_neighbors)
    return float((labels[nearest] == labels[:, None]).mean())


def score(
    X: ArrayLike,
    Y: ArrayLike,
    names: Sequence[str],
    *,
    score_neighbors: int = 10,
    labels: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, float]:
    """Compute scores of an embedding Y of data X, and return them by name.

    Parameters
    ----------
    X : (n, d) array-like
        The data.
    Y : (n, p) array-like
        The embedding, one row for each point, in the order of the data.
    names : sequence of str
        Distinct names of `SCORES`.
    score_neighbors : int
        k for the scores on neighborhoods; below n / 2 for trustworthiness and continuity, below n for the others.
    labels : (n,) array-like of integers or strings, optional
        The class of each point, for the scores that need labels.
    truth : (n, q) array-like, optional
        The true coordinates, for the scores that need the truth.
    on_progress : callable
        Called with (done, total, stage) between blocks of work; an exception that it raises cancels the computation.

    Returns
    -------
    dict of str to float
        In the order of the names.

    Raises
    ------
    InvalidParameterError
        For an unknown name, a k that is too large, too many points for a score, or missing labels or truth.
    InvalidShapeError, NotFiniteError, OutOfRangeError
        For arrays of different lengths, or that are not numbers.
    DisconnectedGraphError
        By the residual variance, if the neighbor graph is not connected. The error names the smallest k that connects
        the graph.
    DegenerateDataError
        If all points of the data, of the embedding or of the truth are equal.

    """
    data, places = checked_matrix(X), checked_matrix(Y, "Y")
    classes, true = _checked_labels(labels, len(data)), None if truth is None else checked_matrix(truth, "truth")
    require_same_length(data, places)
    if true is not None and len(true) != len(data):
        raise InvalidShapeError(
            f"The data have {len(data)} points, but the true coordinates have {len(true)}.",
            remedy="Give one row of true coordinates for each point.",
        )
    report = on_progress or silent
    inputs = {name for name, values in (("labels", classes), ("truth", true)) if values is not None}
    selected = [possible_score(name, len(data), inputs) for name in names]
    for item in selected:
        _check_neighbors(item, score_neighbors, len(data))
    if twice := [name for name in SCORES if [*names].count(name) > 1]:
        raise InvalidParameterError(f"The score {twice[0]} is named twice.", remedy="Name each score once.")
    for points, name in ((data, "the data"), (places, "the embedding"), (true, "the truth")):
        if points is not None and np.all(points == points[0]):
            raise DegenerateDataError(
                f"All {len(points)} points of {name} are equal.", remedy=f"Check that {name} was read as intended."
            )
    score_inputs, scores = ScoreInputs(score_neighbors, classes, true, report), dict[str, float]()
    for done, item in enumerate(selected):
        report(done, len(selected), "scores")
        scores[item.name] = item.run(data, places, score_inputs)
    report(len(selected), len(selected), "scores")
    return scores


def _checked_labels(labels: ArrayLike | None, n: int) -> NDArray[np.generic] | None:
    if labels is None:
        return None
    classes = array_of(labels, "the labels", are_labels=True)
    if classes.shape != (n,) or classes.dtype.kind not in "iubU":
        raise InvalidShapeError(
            f"The labels have shape {classes.shape} and type {classes.dtype}, but there are {n} points.",
            remedy=f"Give {n} labels, integers or texts, one for each point.",
        )
    return classes


def default_scores(inputs: Collection[str]) -> list[str]:
    """Return the names of the scores to compute if the caller names none.

    `inputs` says what is available: "labels", "truth", both or neither.
    """
    return [name for name, item in SCORES.items() if item.by_default and item.needs in {"nothing", *inputs}]


def possible_score(name: str, n: int, inputs: Collection[str]) -> Score:
    """Return the score with a name, or raise `InvalidParameterError` if it cannot be computed.

    The reason is an unknown name, more points n than the score allows, or labels or a truth that the score needs and
    `inputs` does not name.
    """
    item = SCORES.get(name)
    if item is None:
        raise InvalidParameterError(f"There is no score {name[:50]!r}.", remedy=f"Choose from {', '.join(SCORES)}.")
    if item.needs not in {"nothing", *inputs}:
        needed = {"labels": "the class of each point", "truth": "where each point truly lies"}[item.needs]
        raise InvalidParameterError(
            f"{item.title} needs {needed}, but `{item.needs}` was not given.",
            remedy=f"Give `{item.needs}`, or omit the score {name}.",
            details={"score": name},
        )
    if item.most_points is not None and n > item.most_points:
        raise InvalidParameterError(
            f"{item.title} takes at most {item.most_points:,} points; the data have {n:,}.",
            remedy=f"Score a sample of at most {item.most_points:,} points, or omit {name}.",
            details={"score": name, "n_points": n, "most": item.most_points},
        )
    return item


def _check_neighbors(item: Score, k: int, n: int) -> None:
    if item.largest_k is None:
        return
    check_integer("score_neighbors", k, 1)
    if k > (largest := item.largest_k(n)):
        raise InvalidParameterError(
            f"{item.title} of {n} points cannot have {Way('score_neighbors', k)}.",
            remedy=f"Give {Way('score_neighbors')} of at most {largest}." if largest > 0 else "Give more points.",
            details={"score": item.name, "n_points": n, "most": largest},
        )


def _to_truth(Y: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Return the Procrustes disparity of an embedding (n, p) and the truth (n, q).

    The array with fewer columns is padded with zeros, which changes no distance.
    """
    width = max(Y.shape[1], truth.shape[1])
    return disparity(*(np.pad(points, ((0, 0), (0, width - points.shape[1]))) for points in (Y, truth)))


def _q_nx(X: NDArray[np.float64], Y: NDArray[np.float64], inputs: ScoreInputs) -> float:
    return kept_share(kneighbors(X, inputs.score_neighbors)[0], Y)


def _require(array: NDArray[Any] | None) -> NDArray[Any]:
    assert array is not None  # checked by `possible_score`
    return array


_OF_NEIGHBORS = "n log n for few features; n^2 d for many"
_OF_LANDMARKS = "n^2 log n; n log n above 2,000 points"
_OF_PAIRS = "n^2; of a fixed sample above 2,000 points"

SCORES: dict[str, Score] = {
    item.name: item
    for item in (
        Score(
            name="trustworthiness",
            title="Trustworthiness",
            about="How far the k nearest in the embedding are near in the data, by ranks; "
            "in [0, 1] (Venna & Kaski 2001).",
            better="higher",
            largest_k=lambda n: (n - 1) // 2,
            growth=_OF_NEIGHBORS,
            run=lambda X, Y, inputs: trustworthiness(X, Y, inputs.score_neighbors),
        ),
        Score(
            name="continuity",
            title="Continuity",
            about="How far the k nearest in the data are near in the embedding, by ranks; "
            "in [0, 1] (Venna & Kaski 2001).",
            better="higher",
            largest_k=lambda n: (n - 1) // 2,
            growth=_OF_NEIGHBORS,
            run=lambda X, Y, inputs: continuity(X, Y, inputs.score_neighbors),
        ),
        Score(
            name="neighborhood_hit",
            title="Neighborhood hit",
            about="The share of a point's k nearest in the embedding that have its label; "
            "in [0, 1] (Paulovich et al. 2008).",
            needs="labels",
            better="higher",
            largest_k=lambda n: n - 1,
            growth="n log n",
            run=lambda _, Y, inputs: neighborhood_hit(Y, _require(inputs.labels), inputs.score_neighbors),
        ),
        Score(
            name="procrustes",
            title="Procrustes disparity to the truth",
            about="The squared distance to the truth left after translation, scaling, rotation and reflection; "
            "in [0, 1].",
            needs="truth",
            better="lower",
            growth="n",
            run=lambda _, Y, inputs: _to_truth(Y, _require(inputs.truth)),
        ),
        Score(
            name="affine_r2",
            title="Affine R^2 to the truth",
            about="The share of the truth's variance that an affine map of the embedding explains, by least squares; "
            "in [0, 1]; unlike the Procrustes disparity it does not punish embeddings of unit covariance.",
            needs="truth",
            better="higher",
            growth="n",
            run=lambda _, Y, inputs: affine_r_squared(Y, _require(inputs.truth)),
        ),
        Score(
            name="residual_variance",
            title="Residual variance",
            about="1 - R^2 of distances in the embedding with geodesic ones along the k-nearest-neighbor graph of the "
            "data; in [0, 1]; from a fixed sample of 400 landmarks above 2,000 points (Tenenbaum et al. 2000).",
            better="lower",
            largest_k=lambda n: n - 1,
            growth=_OF_LANDMARKS,
            run=lambda X, Y, inputs: residual_variance(X, Y, inputs.score_neighbors, inputs.on_progress),
        ),
        Score(
            name="gplvm",
            title="GP-LVM log likelihood",
            about="The log likelihood of the data as Gaussian processes on the standardized embedding, at the maximum "
            "over one RBF + bias + white kernel for all features; compares embeddings of the same data only "
            "(Lawrence 2005; arXiv 1010.4830).",
            better="higher",
            most_points=MAX_LIKELIHOOD_POINTS,
            growth="n^3",
            reproducible=False,
            by_default=False,
            run=lambda X, Y, inputs: fit_likelihood(X, Y, inputs.on_progress).log_likelihood,
        ),
        Score(
            name="q_nx",
            title="Q_NX",
            about="The share of the k nearest in the data that are among the k nearest in the embedding; in [0, 1] "
            "(Lee & Verleysen 2009).",
            better="higher",
            largest_k=lambda n: n - 2,
            growth=_OF_NEIGHBORS,
            by_default=False,
            run=_q_nx,
        ),
        Score(
            name="lcmc",
            title="Local continuity meta-criterion",
            about="Q_NX less its value for random positions, k / (n - 1); below 1 (Chen & Buja 2009).",
            better="higher",
            largest_k=lambda n: n - 2,
            growth=_OF_NEIGHBORS,
            by_default=False,
            run=lambda X, Y, inputs: _q_nx(X, Y, inputs) - inputs.score_neighbors / (len(X) - 1),
        ),
        Score(
            name="r_nx",
            title="R_NX",
            about="LCMC relative to its largest value: 0 for random positions, 1 if all k nearest are kept (Lee et al. "
            "2013).",
            better="higher",
            largest_k=lambda n: n - 2,
            growth=_OF_NEIGHBORS,
            by_default=False,
            run=lambda X, Y, inputs: kept_neighbors(kneighbors(X, inputs.score_neighbors)[0], Y),
        ),
        Score(
            name="r_nx_auc",
            title="Area under R_NX",
            about="The mean of R_NX over all k with weights 1 / k; at most 1; over a fixed sample of 400 points above "
            "2,000 (Lee et al. 2015).",
            better="higher",
            growth=_OF_LANDMARKS,
            by_default=False,
            run=lambda X, Y, inputs: quality_curves(X, Y, inputs.on_progress).auc,
        ),
        Score(
            name="raw_stress",
            title="Raw stress",
            about="The sum of the squared differences of distances in the data and in the embedding, over all pairs; "
            "in squared units of the data (Kruskal 1964).",
            better="lower",
            growth=_OF_PAIRS,
            by_default=False,
            run=lambda X, Y, _: pairs.raw_stress(X, Y),
        ),
        Score(
            name="normalized_stress",
            title="Normalized stress",
            about="The root of the raw stress over the sum of the squared distances in the data; it depends on the "
            "unit of the embedding (Kruskal 1964).",
            better="lower",
            growth=_OF_PAIRS,
            by_default=False,
            run=lambda X, Y, _: pairs.normalized_stress(X, Y),
        ),
        Score(
            name="scaled_stress",
            title="Scale-normalized stress",
            about="The normalized stress in the best unit of the embedding; in [0, 1] (Smelser et al. 2024).",
            better="lower",
            growth=_OF_PAIRS,
            by_default=False,
            run=lambda X, Y, _: pairs.scaled_stress(X, Y),
        ),
        Score(
            name="shepard",
            title="Shepard correlation",
            about="Spearman's rank correlation of distances in the data and in the embedding; in [-1, 1].",
            better="higher",
            growth=_OF_PAIRS,
            by_default=False,
            run=lambda X, Y, _: pairs.shepard_correlation(X, Y),
        ),
        Score(
            name="random_triplets",
            title="Random triplets accuracy",
            about="The share of random triplets, five for each point, whose order of distances from the first one is "
            "kept; in [0, 1], .5 for random positions (Wang et al. 2021).",
            better="higher",
            growth="n",
            by_default=False,
            run=lambda X, Y, _: pairs.triplet_accuracy(X, Y, pairs.random_triplets(len(X))),
        ),
        Score(
            name="silhouette",
            title="Silhouette of the labels",
            about="How much nearer points are to their own label than to the nearest other one in the embedding; in "
            "[-1, 1] (Rousseeuw 1987).",
            needs="labels",
            better="higher",
            growth=_OF_PAIRS,
            by_default=False,
            run=lambda _, Y, inputs: pairs.silhouette(Y, _require(inputs.labels)),
        ),
    )
}
"""Scores by name, in display order."""
