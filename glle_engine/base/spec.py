"""Parameters of a posterior, declared once: names, defaults, domains and descriptions."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypedDict, get_args

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import Specification, choice, integer, number
from glle_engine.base.texts import Way

Method = Literal["em", "direct"]
Variant = Literal["constrained", "published"]
Variance = Literal["auto", "dirichlet", "ml"]
Mean = Literal["lle", "derived"]
Covariance = Literal["spherical", "full", "full-descent", "full-corrected"]
Disconnected = Literal["bridge", "error"]
Noise = Literal["isotropic", "tangent", "auto"]
Adaptation = Literal["fixed", "adaptive"]
Search = Literal["exact", "approximate"]
Standardize = Literal["none", "zscore", "robust"]
Metric = Literal["euclidean", "cosine", "correlation", "hamming", "precomputed"]
FurtherMetric = Literal[
    Metric,
    "manhattan",
    "chebyshev",
    "canberra",
    "braycurtis",
    "haversine",
    "jaccard",
    "dice",
    "russellrao",
    "rogerstanimoto",
    "sokalsneath",
    "yule",
]
"""Metrics of methods that need nothing but neighbors: those beyond `Metric` are not turned into Euclidean distances."""
Source = Literal["posterior", "prior"]
Align = Literal["procrustes", "none"]
NeighborCount = int | Literal["auto"]
LandmarkCount = int | Literal["auto", "all"]

# Bounds of the default number of neighbors k: fewer neighbors tear a sheet, and the time of a fit grows with k^2.
MIN_NEIGHBORS, MAX_NEIGHBORS = 10, 30
NEIGHBORS_OF_ROOT = 0.35  # ratio of the default k to the root of the number of points (docs/explanation/neighbors.md)

# Limits for landmarks="auto" (docs/explanation/spread.md). They are constants, so that every machine decides alike.
MAX_EXACT_POINTS = 50_000  # beyond about 60,000, even a draw of a sheet with 30 neighbors takes a second
MAX_EXACT_FLOPS = 5 * 10**9  # operations of a factorization, at which a single draw takes about a second
AUTO_LANDMARKS = (4000, 2000)  # tried in turn: a draw of 2,000 points takes less than a second, whatever their graph


def standardize_parameter() -> Any:
    """Declare the parameter `standardize`."""
    return choice(
        "none",
        "Transform each feature before the search: to mean 0 and standard deviation 1 (zscore), or to median 0 and "
        "interquartile range 1 (robust), for features in different units.",
        *get_args(Standardize),
    )


def metric_parameter(metrics: Any = Metric, doc: str = "") -> Any:
    """Declare the parameter `metric`, one of the words of the Literal type `metrics`; `doc` ends the description."""
    return choice(
        "euclidean",
        "Distance by which neighbors are found. Weights reconstruct points that have this distance: rows scaled to "
        "length 1 (cosine), centered rows scaled to length 1 (correlation), or one column for each level of integers "
        f"(hamming). With precomputed, the data are a matrix of distances.{doc}",
        *get_args(metrics),
    )


@dataclass(frozen=True, kw_only=True)
class SpaceSpec(Specification):
    """Base of the specifications that have `standardize` or `metric` as parameters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space[1] in {"hamming", "precomputed"}:
            self.refuse_unused("metric", "standardize")

    @property
    def space(self) -> tuple[Standardize, Metric]:
        """The parameters `standardize` and `metric`."""
        return getattr(self, "standardize", "none"), getattr(self, "metric", "euclidean")

    @property
    def precomputed(self) -> str:
        """Name of the parameter that is "precomputed", such as "metric" or "kernel"; an empty text if none is.

        This parameter makes the data a matrix with a value for each pair of points.
        """
        return next((name for name, value in vars(self).items() if value == "precomputed"), "")


@dataclass(frozen=True, kw_only=True)
class FitSpec(SpaceSpec):
    """Parameters of a posterior over reconstruction weights, described by `FitSpec.parameters()`.

    Options without effect are reset to their defaults, so that equal fits have equal specifications: `max_iter` and
    `tol`, unless method="em" and variant="published"; and with noise="tangent", variance="dirichlet" becomes "auto",
    which means the same there. Any other option that does not apply raises `InvalidParameterError`.
    """

    method: Method = choice(
        "em",
        "Posterior of the weights given the data (em, GLLE Algorithm 1), or given the data and the LLE embedding "
        "(direct, GLLE Algorithm 2).",
        *get_args(Method),
    )
    variant: Variant = choice(
        "constrained",
        "Weights that sum to one (GLLE Eq. 7) with reconstruction noise, or the equations as published.",
        *get_args(Variant),
    )
    n_neighbors: int = integer(  # "auto" becomes a number by `of_points`, before any computation
        "auto",
        "k, the number of neighbors of a point; auto: .35 times the root of the number of points, at least 10 and at "
        "most 30, and at most half of the points. Landmarks count in place of points if their number is given, and "
        "automatic ones of more than 50,000 points as 4,000.",
        minimum=2,
        words=("auto",),
        counts=True,
    )
    n_components: int = integer(2, "p, the dimension of the embedding.", minimum=1)
    reg: float = number(
        1e-3, "Ratio of noise to prior variance; the ridge of LLE is reg * tr(G_i) (GLLE Eq. 9).", above=0
    )
    variance: Variance = choice(
        "auto",
        "Noise variance of the constrained variant: from flat Dirichlet weights, or from the residuals (ml). Auto is "
        "dirichlet if the residuals lie in fewer than n_neighbors - 1 directions (residual_dimension in the "
        "diagnostics) or the noise is tangent, else ml.",
        *get_args(Variance),
    )
    mean: Mean = choice(
        "lle", "Mean of the direct posterior: LLE's weights (Eq. 36), or the derived ones (Eq. 35).", *get_args(Mean)
    )
    covariance: Covariance = choice(
        "spherical",
        "M-step of the EM algorithm (variant published): one variance for each point (Eq. 29), a full covariance as in "
        "the paper (the zero of Eq. 26, in closed form or by the paper's gradient descent), or the maximum of Eq. 23 "
        "with the second moments that Eq. 22 lacks (full-corrected).",
        *get_args(Covariance),
    )
    max_iter: int = integer(50, "Maximum number of iterations of the EM algorithm (variant published).", minimum=1)
    tol: float = number(
        1e-6,
        "The EM algorithm stops when the covariances change by less than this, relatively; 0 runs exactly max_iter "
        "iterations.",
        minimum=0,
    )
    disconnected: Disconnected = choice(
        "bridge",
        "Parts of the graph: join components and closed classes by their shortest edges, with a note (bridge), or "
        "refuse a graph of several components (error).",
        *get_args(Disconnected),
    )
    noise: Noise = choice(
        "isotropic",
        "Reconstruction noise of the constrained variant: equal in all directions, or larger off the sheet (tangent), "
        "for noisy data, few neighbors and many features. Auto fits both noise models and takes the one whose draws "
        "keep neighbors better (noise in the diagnostics).",
        *get_args(Noise),
    )
    neighborhoods: Adaptation = choice(
        "fixed",
        "All k candidates of a point, or those near its tangent plane (adaptive; constrained, isotropic), for sheets "
        "whose turns come close to each other.",
        *get_args(Adaptation),
    )
    search: Search = choice(
        "exact",
        "Neighbor search; approximate is for many points with many features, needs faiss (the extra ann), and reports "
        "its recall.",
        *get_args(Search),
    )
    landmarks: int | Literal["auto", "all"] = integer(
        "auto",
        "m, the number of landmarks (constrained): points that cover the data and have the posterior. The other points "
        "are placed by their weights on the nearest landmarks, which are drawn, too. Auto: all points while a draw of "
        "them is expected to take less than a second, else 4,000 or 2,000 landmarks, with a note. All, or n and more: "
        "all points.",
        minimum=4,
        words=("auto", "all"),
        counts=True,
    )
    standardize: Standardize = standardize_parameter()
    metric: Metric = metric_parameter()

    def check_together(self) -> None:
        """Raise `InvalidParameterError` if an option lacks another one that it needs.

        For example, mean="derived" needs method="direct".

        Options that have no effect in this combination are reset to their defaults, so that equal fits have equal
        specifications.
        """
        is_constrained, constrained = self.variant == "constrained", Way("variant", "constrained")
        is_adaptive, adaptive = self.neighborhoods == "adaptive", "neighborhoods='adaptive'"
        is_precomputed, precomputed = self.metric == "precomputed", "metric='precomputed'"
        is_isotropic, isotropic = self.noise == "isotropic", Way("noise", "isotropic")
        is_published_em = self.method == "em" and not is_constrained
        published_em = f"{Way('method', 'em')} and {Way('variant', 'published')}"
        for is_set, is_possible, option, needed in (
            (self.mean == "derived", self.method == "direct", "mean='derived' (Eq. 35)", Way("method", "direct")),
            (self.covariance != "spherical", is_published_em, f"covariance={self.covariance!r}", published_em),
            (not is_isotropic, is_constrained, f"noise={self.noise!r}", constrained),
            (is_adaptive, is_constrained, adaptive, constrained),
            (is_adaptive, is_isotropic, adaptive, isotropic),
            (self.variance != "auto", is_constrained, f"variance={self.variance!r}", constrained),
            (self.has_landmarks, is_constrained, f"landmarks={self.landmarks}", constrained),
            (is_precomputed, is_constrained, precomputed, constrained),
            (is_precomputed, is_isotropic, precomputed, isotropic),
            (is_precomputed, not is_adaptive, precomputed, Way("neighborhoods", "fixed")),
            (is_precomputed, self.search == "exact", precomputed, Way("search", "exact")),
            (is_precomputed, not self.has_landmarks, precomputed, Way("landmarks", "all")),
        ):
            if is_set and not is_possible:
                raise InvalidParameterError(
                    f"{option} applies only with {needed}.", remedy=f"Leave it at its default, or use {needed}."
                )
        min_landmarks = max(self.n_components + 2, 4 if self.has_auto_neighbors else self.n_neighbors + 1)
        if not isinstance(self.landmarks, str) and self.landmarks < min_landmarks:
            raise InvalidParameterError(
                f"{Way('landmarks', self.landmarks)} is too few for {Way('n_neighbors', self.n_neighbors)} "
                f"and {Way('n_components', self.n_components)}.",
                remedy=f"Give landmarks of at least {min_landmarks}; a few hundred show the shape of a sheet.",
            )
        idle = [] if is_published_em else ["max_iter", "tol"]
        if self.noise == "tangent" and self.variance == "dirichlet":
            idle.append("variance")  # reset to its default "auto", which means "dirichlet" with tangent noise
        for field in fields(FitSpec):
            if field.name in idle:
                object.__setattr__(self, field.name, field.default)

    def of_points(self, n: int) -> Self:
        """Return the specification for n points, with "auto" neighbors replaced by a number.

        `landmarks` of n or more becomes "all". ``landmarks="auto"`` becomes "all" if landmarks are impossible, and else
        stays "auto": the fit decides among the specifications that `choices` returns.
        """
        landmarks = self.landmarks
        if isinstance(landmarks, int) and landmarks >= n:
            landmarks = "all"
        if landmarks == "auto" and not self._may_have_landmarks(n):
            landmarks = "all"
        size = n if isinstance(landmarks, str) else landmarks
        if landmarks == "auto" and n > MAX_EXACT_POINTS:
            size = AUTO_LANDMARKS[0]
        k = default_neighbors(size) if self.has_auto_neighbors else self.n_neighbors
        return replace(self, landmarks=landmarks, n_neighbors=k)

    def _may_have_landmarks(self, n: int) -> bool:
        """Return whether landmarks="auto" may choose landmarks among n points without causing an error.

        The graph of the landmarks may fall apart where the graph of all points does not, so that components must be
        bridged. Resamples take half of the landmarks, which must be enough points for the neighbors and components.
        """
        min_landmarks = min(AUTO_LANDMARKS)
        is_possible = self.variant == "constrained" and self.metric != "precomputed" and self.disconnected == "bridge"
        needed = max(self.n_components + 2, MAX_NEIGHBORS if self.has_auto_neighbors else self.n_neighbors)
        return is_possible and n > min_landmarks and min_landmarks // 2 > needed

    def choices(self, n: int) -> list[Self]:
        """Return the specifications with decreasing numbers of landmarks that a fit to n points tries in turn.

        The fit uses the first specification whose factorization needs at most `MAX_EXACT_FLOPS`, or else the last one.
        With ``landmarks="auto"``, the first specification uses all points, unless there are more than
        `MAX_EXACT_POINTS`, and the others use the numbers of landmarks in `AUTO_LANDMARKS`. With any other value of
        `landmarks`, there is a single specification.
        """
        spec = self.of_points(n)
        if spec.landmarks != "auto":
            return [spec]
        exact: list[int | Literal["auto", "all"]] = ["all"] if n <= MAX_EXACT_POINTS else []
        return [replace(spec, landmarks=each) for each in [*exact, *(m for m in AUTO_LANDMARKS if m < n)]]

    @property
    def has_landmarks(self) -> bool:
        """Whether `landmarks` is a number, neither "auto" nor "all"."""
        return not isinstance(self.landmarks, str)

    @property
    def has_auto_neighbors(self) -> bool:
        """Whether `n_neighbors` is "auto", so that it follows from the number of points."""
        return isinstance(self.n_neighbors, str)


def default_neighbors(n: int) -> int:
    """Return the number of neighbors that "auto" stands for: .35 sqrt(n), but at least 10 and at most 30.

    It is at most half of the points, rounded down, and never less than 2.
    """
    by_root = round(NEIGHBORS_OF_ROOT * math.sqrt(n))
    return min(max(by_root, MIN_NEIGHBORS), MAX_NEIGHBORS, max(n // 2, 2))


class FitParameters(TypedDict, total=False):
    """Keyword arguments of a fit, for type checkers: the fields of `FitSpec`."""

    method: Method
    variant: Variant
    n_neighbors: NeighborCount
    n_components: int
    reg: float
    variance: Variance
    mean: Mean
    covariance: Covariance
    max_iter: int
    tol: float
    disconnected: Disconnected
    noise: Noise
    neighborhoods: Adaptation
    search: Search
    landmarks: LandmarkCount
    standardize: Standardize
    metric: Metric
