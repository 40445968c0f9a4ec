"""Requests and responses of the API. Generated from openapi.json by openapi/client_types.py; do not edit."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

NNeighbor: TypeAlias = int


class AdviceIn(TypedDict):
    """Range of parameters to score on a data set."""

    dataset: str
    """
    Id of a data set.
    """
    n_neighbors: NotRequired[list[NNeighbor] | None]
    """
    Values of k; default 5, 6, 7, 8, 10, 12, 15, 20, 25, 30.
    """
    n_components: NotRequired[int]
    """
    p of the scored embeddings.
    """
    max_components: NotRequired[int]
    """
    Number of dimensions to examine in the spectrum.
    """
    reg: NotRequired[float]
    """
    The ridge of LLE, as in a posterior.
    """
    standardize: NotRequired[Literal["none", "zscore", "robust"]]
    """
    Of the features, as in a posterior.
    """
    metric: NotRequired[Literal["euclidean", "cosine", "correlation", "hamming", "precomputed"]]
    """
    Of the neighbors, as in a posterior.
    """


class ArrayOut(TypedDict):
    """An array of any number of axes."""

    shape: list[int]
    """
    Lengths of the axes.
    """
    dtype: str
    """
    numpy's name of the type.
    """
    data: list[Any]
    """
    Nested lists, the first axis outermost.
    """


class CalibrationIn(TypedDict):
    """Effort of the calibration of the scale."""

    half_samples: NotRequired[int]
    """
    Random halves of the data.
    """
    draws: NotRequired[int]
    """
    Draws at each trial scale.
    """
    seed: NotRequired[int]
    """
    Stream of draws.
    """


class CheckOut(TypedDict):
    """Health check."""

    name: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    """
    Finding.
    """


class ColumnOut(TypedDict):
    """A column of an upload."""

    name: str
    """
    Its name, or its number from 0.
    """
    role: str
    """
    feature, label, color, id, ignore or one_hot; empty if it needs one.
    """


class ComparedIn(TypedDict):
    """Method to compare."""

    method: str
    """
    Name of an embedding method: GET /v1/methods. Spellings such as tsne mean the same.
    """
    parameters: NotRequired[dict[str, Any]]
    """
    Parameters by name; missing ones have their defaults. GET /v1/methods has the schemas.
    """
    label: NotRequired[str | None]
    """
    Name of its row; by default the method, numbered from its second row on.
    """


class ComparisonIn(TypedDict):
    """Methods to compare on one data set."""

    dataset: str
    """
    Id of a data set.
    """
    labels: NotRequired[str | None]
    """
    Id of a data set with the class of each point: its labels, else its only column. For supervised methods, and for scores that need labels.
    """
    truth: NotRequired[str | None]
    """
    Id of a data set with the true coordinates: its own (a synthetic data set may name itself), else its values. For scores that need the truth.
    """
    scores: NotRequired[list[str] | None]
    """
    Names of GET /v1/scores. By default all that labels and truth allow, and those with `most_points` up to a tenth of it; [] for none.
    """
    n_neighbors: NotRequired[int | None]
    """
    Neighbors that the scores use; by default 10, or fewer for few points.
    """
    methods: list[ComparedIn]
    """
    One row each, in this order.
    """
    align: NotRequired[Literal["first", "truth"] | None]
    """
    Also return the embeddings, rotated and scaled to the first that succeeds, or to the truth.
    """
    spread: NotRequired[int | None]
    """
    Refit each method to so many random halves of the data, forty for a start, and return how much of its picture remains, as POST /v1/embeddings/{id}/spread does. By default none.
    """


class ComponentsRowOut(TypedDict):
    """Spectral gap after one n_components."""

    n_components: int
    eigenvalue: float
    relative_gap: float
    """
    Near 0, this coordinate and the next can swap.
    """


class CostOut(TypedDict):
    """Expected cost on one core."""

    seconds: float
    bytes: float
    """
    Peak of the working memory, without the data.
    """


class CubeOut(TypedDict):
    """An array of three axes."""

    shape: list[int]
    """
    Lengths of the axes.
    """
    dtype: str
    """
    numpy's name of the type.
    """
    data: list[list[list[float]]]
    """
    Nested lists, the first axis outermost.
    """


class DatasetOut(TypedDict):
    """A data set."""

    id: str
    """
    Derived from the digest and the tenant, so that equal content has an equal id.
    """
    sha256: str
    """
    Digest of shape, dtype, values, names, labels, colors, coordinates and ids.
    """
    n: int
    """
    Points (rows).
    """
    d: int
    """
    Features (columns).
    """
    dtype: str
    """
    float64, or float32 if it was uploaded so.
    """
    nbytes: int
    """
    Bytes of the values.
    """
    names: list[str] | None
    """
    Names of the features.
    """
    has_labels: bool
    """
    Whether each point has a label.
    """
    has_color: bool
    """
    Whether each point has a number for its color.
    """
    has_coordinates: bool
    """
    Whether each point has its true coordinates.
    """
    has_ids: bool
    """
    Whether the ids of the rows are stored.
    """
    source: dict[str, Any]
    """
    Origin of the data.
    """
    columns: dict[str, list[str]]
    """
    Columns of the upload with another role than feature: label, color, id, ignore, one_hot.
    """
    notices: list[str]
    """
    What the reader of the upload decided, and how to decide otherwise.
    """
    created: str
    """
    ISO 8601, UTC.
    """
    name: str | None
    """
    Name set by PATCH; not part of the content.
    """
    tags: list[str]
    """
    Tags set by PATCH; not part of the content.
    """
    links: dict[str, str]
    """
    URLs of related resources.
    """


class DatasetPage(TypedDict):
    """Data sets, the newest first."""

    next: str | None
    """
    Value of ?cursor= for the next page; null on the last.
    """
    unreadable: NotRequired[list[str]]
    """
    Ids of records that have no JSON, and are left out; each can be deleted.
    """
    items: list[DatasetOut]


class DatasetValuesOut(TypedDict):
    """The values of a data set (n, d), and its columns."""

    shape: list[int]
    """
    Lengths of the axes.
    """
    dtype: str
    """
    numpy's name of the type.
    """
    data: list[list[float]]
    """
    Nested lists, the first axis outermost.
    """
    names: list[str] | None
    """
    Names of the features.
    """
    labels: NotRequired[list[str | float | bool]]
    """
    Label of each point.
    """
    color: NotRequired[list[float]]
    """
    Number of each point for its color.
    """
    coordinates: NotRequired[list[list[float]]]
    """
    True coordinates of each point.
    """
    ids: NotRequired[list[str | int] | list[list[str | int]]]
    """
    Id of each point, or a row of several.
    """


class DrawAddressOut(TypedDict):
    """Place of a draw in its stream."""

    index: int
    scale: float


class DrawsIn(TypedDict):
    """Draws to make."""

    count: int
    """
    Draws at each scale.
    """
    seed: NotRequired[int]
    """
    Stream of draws.
    """
    first: NotRequired[int]
    """
    Index of the first draw.
    """
    scale: NotRequired[float | Literal["auto"] | None]
    """
    Factor on the covariance; auto is the value that half-sampling suggests; default 1.
    """
    scales: NotRequired[list[float | Literal["auto"]] | None]
    """
    Several factors, which become an axis of the result.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights to draw from.
    """
    align: NotRequired[Literal["procrustes", "none"]]
    """
    Whether to rotate to the reference embedding.
    """
    priority: NotRequired[Literal["interactive", "batch"]]
    """
    interactive draws do not wait for batches; they may take no longer than a shard.
    """


class EmbeddingIn(TypedDict):
    """Embedding to compute."""

    method: str
    """
    Name of an embedding method: GET /v1/methods. Spellings such as tsne mean the same.
    """
    parameters: NotRequired[dict[str, Any]]
    """
    Parameters by name; missing ones have their defaults. GET /v1/methods has the schemas.
    """
    dataset: str
    """
    Id of a data set.
    """
    labels: NotRequired[str | None]
    """
    Id of a data set with the class of each point: its labels, else its only column. For supervised methods, and for scores that need labels.
    """
    truth: NotRequired[str | None]
    """
    Id of a data set with the true coordinates: its own (a synthetic data set may name itself), else its values. For scores that need the truth.
    """
    scores: NotRequired[list[str] | None]
    """
    Names of GET /v1/scores. By default all that labels and truth allow, and those with `most_points` up to a tenth of it; [] for none.
    """
    n_neighbors: NotRequired[int | None]
    """
    Neighbors that the scores use; by default 10, or fewer for few points.
    """


class EstimateIn(TypedDict):
    """Embedding to estimate: of a data set, or of n points with d features."""

    method: str
    """
    Name of an embedding method: GET /v1/methods. Spellings such as tsne mean the same.
    """
    parameters: NotRequired[dict[str, Any]]
    """
    Parameters by name; missing ones have their defaults. GET /v1/methods has the schemas.
    """
    dataset: NotRequired[str | None]
    """
    Id of a data set.
    """
    n: NotRequired[int | None]
    """
    Points, if there is no data set.
    """
    d: NotRequired[int | None]
    """
    Features, if there is no data set.
    """


class EstimatedOut(TypedDict):
    """Expected cost of a fit, without the limits: POST /v1/posteriors/estimate adds them."""

    n: int
    d: int
    spec: dict[str, Any]
    search: list[float]
    factorization: dict[str, Any]
    fit: CostOut
    stages: dict[str, float]
    draw: CostOut
    single_draw_seconds: float
    posterior_bytes: float
    factor_entries: float
    factor_flops: float
    intrinsic_dimension: float


class GeneratedArraysOut(TypedDict):
    """Arrays of generated data."""

    data: CubeOut
    """
    (count, n, d), a data set for each draw.
    """


class InfoOut(TypedDict):
    """Versions and limits of the service."""

    name: str
    versions: dict[str, str]
    """
    Versions of the engine and its libraries.
    """
    limits: dict[str, int | float]
    """
    Settings that limit requests; a quota of 0 is none.
    """
    manifolds: list[str]
    """
    Names for POST /v1/datasets/synthetic.
    """
    posterior_defaults: dict[str, Any]
    """
    Defaults of POST /v1/posteriors.
    """
    numbers: str
    """
    Version of the engine's numbers, part of all ids; with `+` and a fingerprint where the workers compute other bits than the pinned ones.
    """


class LiveOut(TypedDict):
    """The process runs."""

    status: NotRequired[Literal["ok"]]


class MatrixOut(TypedDict):
    """An array of two axes."""

    shape: list[int]
    """
    Lengths of the axes.
    """
    dtype: str
    """
    numpy's name of the type.
    """
    data: list[list[float]]
    """
    Nested lists, the first axis outermost.
    """


class MovementReliabilityOut(TypedDict):
    """Whether half-samples rank points alike by their movement."""

    level: Literal["high", "moderate", "low"]
    """
    The statement in one word.
    """
    reason: str
    """
    The statement in one or two sentences.
    """
    reliability: float
    """
    Of the movement over its half-samples, by random halves of them.
    """
    ceiling: float
    """
    Root of the reliability.
    """
    reproducibility: float
    """
    Of the movement over 20 half-samples.
    """


Tag: TypeAlias = str


Tags: TypeAlias = list[Tag]
"""
At most 20, of at most 50 characters each.
"""


Tags1: TypeAlias = None
"""
At most 20, of at most 50 characters each.
"""


class NamingIn(TypedDict):
    """JSON merge patch (RFC 7396): null removes a member, and absent members stay."""

    name: NotRequired[str | None]
    """
    At most 200 characters on one line.
    """
    tags: NotRequired[Tags | Tags1]
    """
    At most 20, of at most 50 characters each.
    """


class NeighborsRowOut(TypedDict):
    """Quality of one n_neighbors."""

    n_neighbors: int
    components: int
    """
    Components of the graph.
    """
    closed_classes: int
    reconstruction_error: float
    trustworthiness: float | None
    """
    Null with several components, like the next two.
    """
    continuity: float | None
    instability: float | None


class NoteOut(TypedDict):
    """Warning or finding."""

    code: str
    message: str


class PointsIn(TypedDict):
    """New points to embed, as a data set or inline."""

    dataset: NotRequired[str | None]
    """
    Id of a data set: the new points.
    """
    data: NotRequired[list[list[float]] | None]
    """
    A few new points, a row each, stored with the job only. The body may have 64 KiB.
    """


class PosteriorIn(TypedDict):
    """A posterior to fit: a data set and the parameters of the engine's `FitSpec`."""

    dataset: str
    """
    Id of a data set.
    """
    method: NotRequired[Literal["em", "direct"]]
    """
    Posterior of the weights given the data (em, GLLE Algorithm 1), or given the data and the LLE embedding (direct, GLLE Algorithm 2).
    """
    variant: NotRequired[Literal["constrained", "published"]]
    """
    Weights that sum to one (GLLE Eq. 7) with reconstruction noise, or the equations as published.
    """
    n_neighbors: NotRequired[int]
    """
    k, the number of neighbors of a point.
    """
    n_components: NotRequired[int]
    """
    p, the dimension of the embedding.
    """
    reg: NotRequired[float]
    """
    Ratio of noise to prior variance; the ridge of LLE is reg * tr(G_i) (GLLE Eq. 9).
    """
    variance: NotRequired[Literal["auto", "dirichlet", "ml"]]
    """
    Noise variance of the constrained variant: that of flat Dirichlet weights, or of the residuals (ml). Auto is dirichlet if the residuals lie in fewer than n_neighbors - 1 directions (the figure residual_dimension) or the noise is tangent, else ml.
    """
    mean: NotRequired[Literal["lle", "derived"]]
    """
    Mean of the direct posterior: LLE's weights (Eq. 36), or the derived ones (Eq. 35).
    """
    covariance: NotRequired[Literal["spherical", "full", "full-corrected"]]
    """
    M-step of the published em: one variance for each point (Eq. 29), a full covariance as published (the zero of Eq. 26), or the maximum of Eq. 23 with the second moments that Eq. 22 lacks (full-corrected).
    """
    max_iter: NotRequired[int]
    """
    Maximum number of iterations of the published em.
    """
    tol: NotRequired[float]
    """
    Relative change of the covariances at which the published em stops; 0 runs exactly max_iter iterations.
    """
    disconnected: NotRequired[Literal["bridge", "error"]]
    """
    Parts of the graph: join components and closed classes by their shortest edges, with a note (bridge), or refuse a graph of several components (error).
    """
    noise: NotRequired[Literal["isotropic", "tangent", "auto"]]
    """
    Reconstruction noise of the constrained variant: equal in all directions, or larger off the sheet (tangent), for noisy data, few neighbors and many features. Auto fits both and keeps that whose draws keep neighbors better (the figure noise).
    """
    neighborhoods: NotRequired[Literal["fixed", "adaptive"]]
    """
    All k candidates of a point, or those near its tangent plane (adaptive; constrained, isotropic), for sheets whose turns come close to each other.
    """
    search: NotRequired[Literal["exact", "approximate"]]
    """
    Neighbor search; approximate is for many points with many features, needs faiss (the extra ann), and reports its recall.
    """
    landmarks: NotRequired[int | None]
    """
    m, the number of landmarks (constrained): points that cover the data and have the posterior. The other points are placed by their weights on the nearest landmarks, which are drawn, too. Null, or n and more: all points.
    """
    standardize: NotRequired[Literal["none", "zscore", "robust"]]
    """
    Transform each feature before the search: to mean 0 and standard deviation 1 (zscore), or to median 0 and interquartile range 1 (robust), for features in different units.
    """
    metric: NotRequired[Literal["euclidean", "cosine", "correlation", "hamming", "precomputed"]]
    """
    Distance of the neighbors. Weights are those of points at these distances: of rows of length 1 (cosine), of centred rows of length 1 (correlation), of one column for each level of integers (hamming); precomputed takes a matrix of distances as the data.
    """
    neighbors: NotRequired[str | None]
    """
    Id of a data set (n, k) of neighbors, in place of a search: rows of the data, counted from 0. n_neighbors is then k.
    """


class PosteriorOut(TypedDict):
    """A fitted posterior."""

    id: str
    """
    Digest of data set, specification and engine version; or of an imported content.
    """
    dataset: str
    """
    Id of its data set.
    """
    n: int
    """
    Points.
    """
    d: int
    """
    Features.
    """
    spec: dict[str, Any]
    """
    Every parameter with its value; `neighbors` if they were given.
    """
    diagnostics: dict[str, Any]
    """
    `figures` of the fit, and `notes` with warnings and findings.
    """
    eigenvalues: list[float]
    """
    Bottom of the spectrum, one more than the embedding uses.
    """
    seconds: float
    """
    Duration of the fit.
    """
    stages: dict[str, float]
    """
    Seconds of its stages: neighbors, weights, embedding, posterior, diagnostics.
    """
    arrays: dict[str, dict[str, Any]]
    """
    Shape and dtype of each array.
    """
    nbytes: int
    """
    Bytes of the arrays.
    """
    provenance: dict[str, str]
    """
    Versions and machine, for a replay; `imported`, the digest of the content, if it was imported.
    """
    job: str
    """
    The job that fitted it.
    """
    created: str
    """
    ISO 8601, UTC.
    """
    name: str | None
    """
    Name set by PATCH.
    """
    tags: list[str]
    """
    Tags set by PATCH.
    """
    links: dict[str, str]
    """
    URLs of related resources.
    """


class PosteriorPage(TypedDict):
    """Posteriors, the newest first."""

    next: str | None
    """
    Value of ?cursor= for the next page; null on the last.
    """
    unreadable: NotRequired[list[str]]
    """
    Ids of records that have no JSON, and are left out; each can be deleted.
    """
    items: list[PosteriorOut]


class ProblemOut(TypedDict):
    """An error: what went wrong, and the remedy."""

    type: str
    """
    Stable URI of the kind of failure.
    """
    title: str
    """
    The same for every failure of this kind.
    """
    status: int
    """
    The HTTP status.
    """
    detail: str
    """
    What went wrong this time.
    """
    remedy: str
    """
    What to do about it.
    """
    details: dict[str, Any]
    """
    Facts: positions, sizes, limits.
    """


class ProgressOut(TypedDict):
    """Progress of a job."""

    done: int
    total: int
    stage: str
    """
    Current stage; except for draws, done and total count within it.
    """
    eta: float | None
    """
    Seconds until done reaches total at the rate so far: the end of draws, else of the stage; or null.
    """


class QuantilesOut(TypedDict):
    """Quantiles over the points."""

    levels: list[float]
    spread: list[float]
    stability: list[float]
    local_trust: list[float]


class QuotaOut(TypedDict):
    """Use of a quota."""

    used: int
    allowed: int | None
    """
    The quota; null for no limit.
    """
    reset: float | None
    """
    Seconds until it is unused if nothing more is sent; null if it does not refill by itself.
    """


class QuotasOut(TypedDict):
    """Use of each quota."""

    bytes: QuotaOut
    """
    Bytes of data sets on disk; DELETE frees them.
    """
    jobs: QuotaOut
    """
    Open jobs; their ends free them.
    """
    requests: QuotaOut
    """
    Requests of the last minute, to one second's share of each API process.
    """
    records: QuotaOut
    """
    Records of ended jobs, of which the oldest are removed.
    """
    posteriors: QuotaOut
    """
    Posteriors; DELETE frees them.
    """
    idempotency_keys: QuotaOut
    """
    Idempotency-Keys whose answers are kept; they expire.
    """


class ReadyOut(TypedDict):
    """The service is ready."""

    status: NotRequired[Literal["ok", "degraded"]]
    """
    degraded: a check has a warning.
    """
    workers: NotRequired[int | None]
    """
    Workers with a recent heartbeat; with a key only.
    """
    queue_length: NotRequired[int | None]
    """
    Waiting tasks and single draws; with a key only.
    """
    checks: NotRequired[list[CheckOut] | None]
    """
    All checks; with a key only.
    """


class ReconstructionsIn(TypedDict):
    """Data sets to generate from drawn weights."""

    seed: NotRequired[int]
    """
    Stream of draws.
    """
    first: NotRequired[int]
    """
    Index of the first draw.
    """
    scale: NotRequired[float]
    """
    Factor on the covariance; 0 is LLE.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights to draw from.
    """
    count: int
    """
    Number of data sets, one per draw.
    """


class ReconstructionsOut(TypedDict):
    """Data generated from drawn weights."""

    engine: str
    """
    Version of the engine's numbers.
    """
    seed: int
    """
    Of the request, as for draws.
    """
    first: int
    """
    Of the request, as for draws.
    """
    scale: float
    """
    Of the request, as for draws.
    """
    source: Literal["posterior", "prior"]
    """
    Of the request, as for draws.
    """
    count: int
    """
    Number of data sets.
    """
    arrays: GeneratedArraysOut


class RegionsOut(TypedDict):
    """Regions around the points: their half-axes are a radius times those of radius 1."""

    levels: list[float]
    """
    Share of the places of a point that its region holds, on average over the points.
    """
    radii: list[float]
    """
    Radius for each level.
    """


class ReliabilityOut(TypedDict):
    """Whether points can be ranked by their spread."""

    level: Literal["high", "moderate", "low"]
    """
    The statement in one word.
    """
    reason: str
    """
    The statement in one or two sentences.
    """
    expected: float
    """
    Expected rank correlation of the spread with that over new samples.
    """
    reliability: float
    """
    Of the spread over the embeddings, by random halves of them.
    """
    ceiling: float
    """
    Root of the reliability.
    """
    reproducibility: float
    """
    Of the spread of 20 resamples of one kind.
    """
    agreement: float
    """
    Rank correlation of the spread of draws with that of resamples.
    """
    saturated: bool
    """
    Whether the scale of the draws could not be identified.
    """


class ScoreOut(TypedDict):
    """Score of embeddings."""

    name: str
    title: str
    about: str
    needs: Literal["nothing", "labels", "truth"]
    """
    Additional input beside data and embedding.
    """
    better: Literal["higher", "lower"]
    most_points: int | None
    """
    Largest number of points it is computed for.
    """
    growth: str
    """
    Growth of its time with n.
    """
    reproducible: bool
    """
    Whether every processor computes the same bits.
    """


class SpectrumOut(TypedDict):
    """Spectra of the draws, a row each."""

    eigenvalues: list[list[float]]
    relative_gaps: list[float | None]
    """
    Null if the solver did not estimate the next eigenvalue.
    """
    agreement: list[float]
    """
    Agreement of the span of a draw with that of the reference.
    """


class SpreadFiguresOut(TypedDict):
    """Figures of the movement of an embedding."""

    half_samples: int
    """
    Half-samples that were embedded.
    """
    share: float
    """
    Of the points in each sample.
    """
    refits: int
    """
    Refits with other seeds.
    """
    failed: int
    """
    Half-samples that could not be embedded, and are left out.
    """
    n_neighbors: int
    """
    Neighbors that may be kept.
    """
    median_movement: float
    """
    In the unit of the embedding.
    """
    relative_movement: float
    """
    The same over the root mean square radius of the embedding.
    """
    seed_share: float
    """
    Share of the variance that refits with other seeds explain.
    """
    pairs_kept: float
    """
    Share of neighbor pairs of the embedding that stay neighbors.
    """
    pairs_by_chance: float
    """
    The same of noise.
    """
    cluster_stability: float
    """
    Mean adjusted Rand index of the clusters; 0 is chance.
    """
    classes: Literal["labels", "clusters"]
    """
    What the classes are.
    """
    n_classes: int
    separated: float | None
    """
    Share of points whose disc of half the refits is smaller than the distance to the next class; null with one class.
    """
    baseline_correlation: float | None
    """
    Spearman's, of movement with the mean distance to the 10 nearest neighbors in the data.
    """


class SpreadIn(TypedDict):
    """Refits that show how far an embedding moves."""

    half_samples: NotRequired[int]
    """
    Random halves of the data to which the method is refitted; forty or more rank points.
    """
    refits: NotRequired[int]
    """
    Refits of all points with other seeds, of a method that has a seed.
    """
    seed: NotRequired[int]
    """
    Of the choice of the halves.
    """
    share: NotRequired[float]
    """
    Share of the points in each sample: 0.5, or 0.632 where half of the points are too few. The movement is corrected for it.
    """
    labels: NotRequired[str | None]
    """
    Id of a data set with the class of each point: its labels, else its only column. By default the labels of the embedding's data set, or clusters of the embedding if there are none.
    """
    n_neighbors: NotRequired[int]
    """
    Neighbors in the embedding that may stay neighbors.
    """


class StartOut(TypedDict):
    """Entry points of the API."""

    name: str
    version: str
    """
    Version of the engine.
    """
    links: dict[str, str]
    """
    Paths of the explorer, the documentation, the contract and the info.
    """


class SyntheticIn(TypedDict):
    """A synthetic manifold to sample."""

    name: str
    """
    One of s_curve, swiss_roll, swiss_roll_hole, severed_bowl.
    """
    n: NotRequired[int]
    """
    Number of points.
    """
    noise: NotRequired[float]
    """
    Standard deviation of the noise, relative to the manifold's size.
    """
    seed: NotRequired[int]
    """
    The same seed gives the same points.
    """


class TransformIn(TypedDict):
    """New points to embed, as a data set or inline, and the draws to embed them in."""

    seed: NotRequired[int]
    """
    Stream of draws.
    """
    first: NotRequired[int]
    """
    Index of the first draw.
    """
    scale: NotRequired[float]
    """
    Factor on the covariance; 0 is LLE.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights to draw from.
    """
    dataset: NotRequired[str | None]
    """
    Id of a data set: the new points.
    """
    data: NotRequired[list[list[float]] | None]
    """
    A few new points, a row each, stored with the job only. The body may have 64 KiB.
    """
    draws: NotRequired[int]
    """
    Draws for the mean and covariance of each new point: none, or at least two.
    """


class UsageOut(TypedDict):
    """Use of the service by one tenant."""

    tenant: str
    quotas: QuotasOut
    datasets: int
    """
    Number of data sets.
    """
    posterior_bytes: int
    """
    Bytes of the arrays of its posteriors, of which some may be evicted.
    """


class VariantOut(TypedDict):
    """Variant of a method."""

    name: str
    description: str


class VectorOut(TypedDict):
    """An array of one axis."""

    shape: list[int]
    """
    Lengths of the axes.
    """
    dtype: str
    """
    numpy's name of the type.
    """
    data: list[float]
    """
    Nested lists, the first axis outermost.
    """


class TableIn(TypedDict):
    """A table as JSON; for documentation, because the readers of uploads parse it."""

    data: list[list[float]]
    """
    Points, a row each.
    """
    names: NotRequired[list[str] | None]
    """
    Names of the features.
    """
    labels: NotRequired[list[str | float | None] | None]
    """
    Label of each point; null if missing.
    """
    color: NotRequired[list[float] | None]
    """
    Number of each point for its color.
    """
    ids: NotRequired[list[str | int | None] | list[list[str | int | None]] | None]
    """
    Id of each point, or a row of several; null if missing.
    """


class SyntheticOptions(TypedDict):
    """Keyword arguments, of `SyntheticIn`."""

    noise: NotRequired[float]
    """
    Standard deviation of the noise, relative to the manifold's size.
    """
    seed: NotRequired[int]
    """
    The same seed gives the same points.
    """


class FitOptions(TypedDict):
    """Keyword arguments, of `PosteriorIn`."""

    method: NotRequired[Literal["em", "direct"]]
    """
    Posterior of the weights given the data (em, GLLE Algorithm 1), or given the data and the LLE embedding (direct, GLLE Algorithm 2).
    """
    variant: NotRequired[Literal["constrained", "published"]]
    """
    Weights that sum to one (GLLE Eq. 7) with reconstruction noise, or the equations as published.
    """
    n_neighbors: NotRequired[int]
    """
    k, the number of neighbors of a point.
    """
    n_components: NotRequired[int]
    """
    p, the dimension of the embedding.
    """
    reg: NotRequired[float]
    """
    Ratio of noise to prior variance; the ridge of LLE is reg * tr(G_i) (GLLE Eq. 9).
    """
    variance: NotRequired[Literal["auto", "dirichlet", "ml"]]
    """
    Noise variance of the constrained variant: that of flat Dirichlet weights, or of the residuals (ml). Auto is dirichlet if the residuals lie in fewer than n_neighbors - 1 directions (the figure residual_dimension) or the noise is tangent, else ml.
    """
    mean: NotRequired[Literal["lle", "derived"]]
    """
    Mean of the direct posterior: LLE's weights (Eq. 36), or the derived ones (Eq. 35).
    """
    covariance: NotRequired[Literal["spherical", "full", "full-corrected"]]
    """
    M-step of the published em: one variance for each point (Eq. 29), a full covariance as published (the zero of Eq. 26), or the maximum of Eq. 23 with the second moments that Eq. 22 lacks (full-corrected).
    """
    max_iter: NotRequired[int]
    """
    Maximum number of iterations of the published em.
    """
    tol: NotRequired[float]
    """
    Relative change of the covariances at which the published em stops; 0 runs exactly max_iter iterations.
    """
    disconnected: NotRequired[Literal["bridge", "error"]]
    """
    Parts of the graph: join components and closed classes by their shortest edges, with a note (bridge), or refuse a graph of several components (error).
    """
    noise: NotRequired[Literal["isotropic", "tangent", "auto"]]
    """
    Reconstruction noise of the constrained variant: equal in all directions, or larger off the sheet (tangent), for noisy data, few neighbors and many features. Auto fits both and keeps that whose draws keep neighbors better (the figure noise).
    """
    neighborhoods: NotRequired[Literal["fixed", "adaptive"]]
    """
    All k candidates of a point, or those near its tangent plane (adaptive; constrained, isotropic), for sheets whose turns come close to each other.
    """
    search: NotRequired[Literal["exact", "approximate"]]
    """
    Neighbor search; approximate is for many points with many features, needs faiss (the extra ann), and reports its recall.
    """
    landmarks: NotRequired[int | None]
    """
    m, the number of landmarks (constrained): points that cover the data and have the posterior. The other points are placed by their weights on the nearest landmarks, which are drawn, too. Null, or n and more: all points.
    """
    standardize: NotRequired[Literal["none", "zscore", "robust"]]
    """
    Transform each feature before the search: to mean 0 and standard deviation 1 (zscore), or to median 0 and interquartile range 1 (robust), for features in different units.
    """
    metric: NotRequired[Literal["euclidean", "cosine", "correlation", "hamming", "precomputed"]]
    """
    Distance of the neighbors. Weights are those of points at these distances: of rows of length 1 (cosine), of centred rows of length 1 (correlation), of one column for each level of integers (hamming); precomputed takes a matrix of distances as the data.
    """


class DrawsOptions(TypedDict):
    """Keyword arguments, of `DrawsIn`."""

    seed: NotRequired[int]
    """
    Stream of draws.
    """
    first: NotRequired[int]
    """
    Index of the first draw.
    """
    scale: NotRequired[float | Literal["auto"] | None]
    """
    Factor on the covariance; auto is the value that half-sampling suggests; default 1.
    """
    scales: NotRequired[list[float | Literal["auto"]] | None]
    """
    Several factors, which become an axis of the result.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights to draw from.
    """
    align: NotRequired[Literal["procrustes", "none"]]
    """
    Whether to rotate to the reference embedding.
    """
    priority: NotRequired[Literal["interactive", "batch"]]
    """
    interactive draws do not wait for batches; they may take no longer than a shard.
    """


class TransformOptions(TypedDict):
    """Keyword arguments, of `TransformIn`."""

    seed: NotRequired[int]
    """
    Stream of draws.
    """
    first: NotRequired[int]
    """
    Index of the first draw.
    """
    scale: NotRequired[float]
    """
    Factor on the covariance; 0 is LLE.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights to draw from.
    """
    draws: NotRequired[int]
    """
    Draws for the mean and covariance of each new point: none, or at least two.
    """


class ReconstructionsOptions(TypedDict):
    """Keyword arguments, of `ReconstructionsIn`."""

    seed: NotRequired[int]
    """
    Stream of draws.
    """
    first: NotRequired[int]
    """
    Index of the first draw.
    """
    scale: NotRequired[float]
    """
    Factor on the covariance; 0 is LLE.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights to draw from.
    """


class CalibrationOptions(TypedDict):
    """Keyword arguments, of `CalibrationIn`."""

    half_samples: NotRequired[int]
    """
    Random halves of the data.
    """
    draws: NotRequired[int]
    """
    Draws at each trial scale.
    """
    seed: NotRequired[int]
    """
    Stream of draws.
    """


class AdviceOptions(TypedDict):
    """Keyword arguments, of `AdviceIn`."""

    n_neighbors: NotRequired[list[NNeighbor] | None]
    """
    Values of k; default 5, 6, 7, 8, 10, 12, 15, 20, 25, 30.
    """
    n_components: NotRequired[int]
    """
    p of the scored embeddings.
    """
    max_components: NotRequired[int]
    """
    Number of dimensions to examine in the spectrum.
    """
    reg: NotRequired[float]
    """
    The ridge of LLE, as in a posterior.
    """
    standardize: NotRequired[Literal["none", "zscore", "robust"]]
    """
    Of the features, as in a posterior.
    """
    metric: NotRequired[Literal["euclidean", "cosine", "correlation", "hamming", "precomputed"]]
    """
    Of the neighbors, as in a posterior.
    """


class SpreadOptions(TypedDict):
    """Keyword arguments, of `SpreadIn`."""

    half_samples: NotRequired[int]
    """
    Random halves of the data to which the method is refitted; forty or more rank points.
    """
    refits: NotRequired[int]
    """
    Refits of all points with other seeds, of a method that has a seed.
    """
    seed: NotRequired[int]
    """
    Of the choice of the halves.
    """
    share: NotRequired[float]
    """
    Share of the points in each sample: 0.5, or 0.632 where half of the points are too few. The movement is corrected for it.
    """
    n_neighbors: NotRequired[int]
    """
    Neighbors in the embedding that may stay neighbors.
    """


class CompareOptions(TypedDict):
    """Keyword arguments, of `ComparisonIn`."""

    scores: NotRequired[list[str] | None]
    """
    Names of GET /v1/scores. By default all that labels and truth allow, and those with `most_points` up to a tenth of it; [] for none.
    """
    n_neighbors: NotRequired[int | None]
    """
    Neighbors that the scores use; by default 10, or fewer for few points.
    """
    align: NotRequired[Literal["first", "truth"] | None]
    """
    Also return the embeddings, rotated and scaled to the first that succeeds, or to the truth.
    """
    spread: NotRequired[int | None]
    """
    Refit each method to so many random halves of the data, forty for a start, and return how much of its picture remains, as POST /v1/embeddings/{id}/spread does. By default none.
    """


class DatasetsOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/datasets."""

    tag: NotRequired[list[str]]
    """
    Only those with this tag; if repeated, with all of them.
    """
    name: NotRequired[str | None]
    """
    Only those with this name.
    """


class UploadOptions(TypedDict):
    """Keyword arguments, the query of POST /v1/datasets."""

    label: NotRequired[str | None]
    """
    Column of labels: its name, in CSV also its number from 0, in npz a member.
    """
    color: NotRequired[str | None]
    """
    Column of numbers that colors the points: as for `label`.
    """
    features: NotRequired[list[str]]
    """
    Columns to fit, by names or patterns such as `x*`; all others are left out.
    """
    id: NotRequired[list[str]]
    """
    Columns that name the rows, by names or patterns: ids, no features.
    """
    ignore: NotRequired[list[str]]
    """
    Columns to leave out, by names or patterns.
    """
    one_hot: NotRequired[list[str]]
    """
    Columns of categories, each of which becomes a feature of zeros and ones.
    """
    header: NotRequired[Literal["present", "absent"] | None]
    """
    Of text: whether the first row has the names.
    """
    delimiter: NotRequired[Literal["comma", "tab", "semicolon", "pipe"] | None]
    """
    Of text; without it sniffed.
    """
    decimal: NotRequired[Literal["point", "comma"] | None]
    """
    Decimal mark of text; without it sniffed.
    """
    charset: NotRequired[Literal["utf-8", "utf-16", "windows-1252", "iso-8859-15", "macintosh"] | None]
    """
    Encoding of text; without it UTF-8, or UTF-16 by its first bytes.
    """


class PosteriorsOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/posteriors."""

    tag: NotRequired[list[str]]
    """
    Only those with this tag; if repeated, with all of them.
    """
    name: NotRequired[str | None]
    """
    Only those with this name.
    """


class JobsOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/jobs."""

    status: NotRequired[Literal["queued", "running", "cancelling", "cancelled", "succeeded", "failed"] | None]
    """
    Only jobs of this status.
    """
    kind: NotRequired[
        Literal[
            "fit",
            "draws",
            "summary",
            "transform",
            "reconstructions",
            "calibration",
            "advice",
            "estimate",
            "embedding",
            "placement",
            "spread",
            "comparison",
            "picture",
        ]
        | None
    ]
    """
    Only jobs of this kind.
    """


class MethodsOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/methods."""

    makes: NotRequired[Literal["posterior", "embedding"] | None]
    """
    Only methods with this result.
    """


class DrawOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/posteriors/{id}/draws/{index}."""

    seed: NotRequired[int]
    """
    Stream of draws.
    """
    scale: NotRequired[float | Literal["auto"]]
    """
    Factor on the covariance; auto: the scale that half-sampling suggests.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights.
    """
    align: NotRequired[Literal["procrustes", "none"]]
    """
    Whether to rotate the draw to the reference embedding.
    """
    dtype: NotRequired[Literal["float64", "float32"]]
    """
    float32 halves the bytes.
    """
    points: NotRequired[str | None]
    """
    Only these points: `a:b` as in Python, half open; or a comma list of at most 1,000 positions from 0.
    """


class SummaryOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/posteriors/{id}/summary."""

    first: NotRequired[int]
    """
    Index of the first draw.
    """
    seed: NotRequired[int]
    """
    Stream of draws.
    """
    scale: NotRequired[float | Literal["auto"] | None]
    """
    auto, the default where resamples can measure the posterior: the ensemble of calibrated draws and resamples. A number, else 1: the spread of the draws alone, at this factor on the covariance.
    """
    resamples: NotRequired[int | None]
    """
    Resamples of each of three kinds, with scale=auto; default 40.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Law of the weights.
    """
    dtype: NotRequired[Literal["float64", "float32"]]
    """
    float32 halves the bytes.
    """
    points: NotRequired[str | None]
    """
    Only these points: `a:b` as in Python, half open; or a comma list of at most 1,000 positions from 0.
    """


class AdviceOut(TypedDict):
    """Judgement of n_neighbors and n_components."""

    n_neighbors: int | None
    """
    Suggestion; null if no graph of the range is connected.
    """
    n_components: int | None
    """
    Suggestion at that n_neighbors, or null.
    """
    intrinsic_dimension: float
    neighbors_curve: list[NeighborsRowOut]
    components_curve: list[ComponentsRowOut]
    notes: list[NoteOut]
    """
    Reasons of the suggestions.
    """


class CalibrationArraysOut(TypedDict):
    """Arrays of a calibration."""

    half_sample_spread: VectorOut
    """
    (n,), of each point over half-samples.
    """
    draw_spread: VectorOut
    """
    (n,), of each point over draws at the scale.
    """


class CalibrationFactsOut(TypedDict):
    """Result of a calibration without its request."""

    scale: float
    """
    Scale at which draws spread as half-samples do.
    """
    ratio: float
    """
    Median spread of draws at the scale over that of half-samples.
    """
    rank_correlation: float
    """
    Spearman's, between the two spreads over points.
    """
    slope: float | None
    """
    Of spread over scale in logarithms; null if scale 1 was right at once.
    """
    saturated: bool
    """
    Whether the spread hardly depends on the scale.
    """
    trace: list[list[float]]
    """
    Pairs of scale and ratio, in the order of their evaluation.
    """
    notes: list[NoteOut]
    """
    Doubts about the scale.
    """


class CalibrationOut(TypedDict):
    """Calibration of the scale."""

    scale: float
    """
    Scale at which draws spread as half-samples do.
    """
    ratio: float
    """
    Median spread of draws at the scale over that of half-samples.
    """
    rank_correlation: float
    """
    Spearman's, between the two spreads over points.
    """
    slope: float | None
    """
    Of spread over scale in logarithms; null if scale 1 was right at once.
    """
    saturated: bool
    """
    Whether the spread hardly depends on the scale.
    """
    trace: list[list[float]]
    """
    Pairs of scale and ratio, in the order of their evaluation.
    """
    notes: list[NoteOut]
    """
    Doubts about the scale.
    """
    engine: str
    """
    Version of the engine's numbers.
    """
    half_samples: int
    """
    Number of random halves of the data.
    """
    draws: int
    """
    Draws at each trial scale.
    """
    seed: int
    """
    Of the request, as for draws.
    """
    arrays: CalibrationArraysOut


class ComparedOut(TypedDict):
    """Row of a comparison."""

    label: str
    method: str
    parameters: dict[str, Any]
    """
    Every parameter with its value.
    """
    embedding: str | None
    """
    Id of the embedding; null without one, like the next members.
    """
    seconds: dict[str, float] | None
    eigenvalues: list[float] | None
    figures: dict[str, Any] | None
    scores: dict[str, float] | None
    spread: NotRequired[SpreadFiguresOut | None]
    """
    With spread: how much of its picture remains over half-samples; null if it could not be refitted.
    """
    problem: ProblemOut | None
    """
    Why the method has no embedding; null if it has one.
    """
    notes: list[NoteOut]
    links: dict[str, str]
    """
    URLs of related resources.
    """


class ComparisonOut(TypedDict):
    """Several methods with the same scores."""

    dataset: str
    labels: str | None
    truth: str | None
    n_neighbors: int
    engine: str
    align: Literal["first", "truth"] | None
    aligned_to: str | None
    """
    Label of the row, or truth.
    """
    spread: NotRequired[int]
    """
    Half-samples of each method, if any.
    """
    spread_labels: NotRequired[str | None]
    """
    With spread: data set of the classes; null for the clusters of each embedding.
    """
    rows: list[ComparedOut]
    arrays: NotRequired[dict[str, MatrixOut]]
    """
    With align: the embeddings by label.
    """


class DatasetPreviewOut(TypedDict):
    """What an upload would store."""

    id: str | None
    """
    Id of the data set; null if it is refused.
    """
    n: int | None
    """
    Points (rows).
    """
    d: int | None
    """
    Features, after one-hot.
    """
    format: str | None
    """
    csv, npy, npz, json, arrow, feather or parquet.
    """
    dialect: dict[str, str]
    """
    Of text: what differs from commas, decimal points and UTF-8.
    """
    names: list[str] | None
    """
    Names of the features.
    """
    columns: list[ColumnOut]
    """
    The columns of the file and their roles, at most the first hundred.
    """
    notices: list[str]
    """
    What the reader decided, and how to decide otherwise.
    """
    rows: list[list[float]]
    """
    Features of the first five points, as they are fitted.
    """
    labels: list[str | float] | None
    """
    Labels of these points.
    """
    color: list[float] | None
    """
    Colors of these points.
    """
    ids: list[str | int] | list[list[str | int]] | None
    """
    Ids of these points, as in the file.
    """
    problem: ProblemOut | None
    """
    Why an upload would be refused; null if it would not.
    """


class DrawOut(TypedDict):
    """One draw (n, p)."""

    shape: list[int]
    """
    Lengths of the axes.
    """
    dtype: str
    """
    numpy's name of the type.
    """
    data: list[list[float]]
    """
    Nested lists, the first axis outermost.
    """
    eigenvalues: list[float]
    """
    p smallest eigenvalues above the constant eigenvector's.
    """
    seed: int
    """
    Stream of draws.
    """
    index: int
    """
    Index in the stream.
    """
    scale: float
    """
    Factor on the covariance, also for auto.
    """
    source: Literal["posterior", "prior"]
    """
    Law of the weights.
    """
    align: Literal["procrustes", "none"]
    """
    Whether it is rotated to the reference embedding.
    """
    diagnostics: dict[str, Any]
    """
    Solver, residual and findings of this draw.
    """
    notes: NotRequired[list[NoteOut]]
    """
    Doubts about the scale, with scale=auto and if there are any.
    """


class DrawsOut(TypedDict):
    """Draws (count, n, p), or (scales, count, n, p)."""

    shape: list[int]
    """
    Lengths of the axes.
    """
    dtype: str
    """
    numpy's name of the type.
    """
    data: list[list[list[float]]] | list[list[list[list[float]]]]
    """
    Nested lists, the first axis outermost.
    """
    eigenvalues: list[list[float]] | list[list[list[float]]]
    """
    Of each draw, with the same leading axes.
    """
    diagnostics: list[dict[str, Any]]
    """
    Of each draw, scale by scale.
    """
    draws: list[DrawAddressOut]
    """
    Index and scale of each draw, scale by scale.
    """
    notes: NotRequired[list[NoteOut]]
    """
    Doubts about the calibrated scale, with auto and if there are any.
    """


class EmbeddingArraysOut(TypedDict):
    """Arrays of an embedding."""

    embedding: MatrixOut
    """
    (n, p).
    """


class EmbeddingOut(TypedDict):
    """Embedding without its coordinates."""

    id: str
    """
    Digest of data set, method, all parameters, labels and engine version.
    """
    dataset: str
    """
    Id of its data set.
    """
    method: str
    parameters: dict[str, Any]
    """
    Every parameter with its value.
    """
    labels: str | None
    """
    Data set with the classes for a supervised method.
    """
    engine: str
    """
    Version of the engine.
    """
    n: int
    """
    Points.
    """
    eigenvalues: list[float] | None
    """
    Eigenvalues of spectral methods, in the order of the columns.
    """
    figures: dict[str, Any]
    """
    Figures of the method, such as log_likelihood and iterations.
    """
    notes: list[NoteOut]
    """
    Warnings and findings, with the remedy.
    """
    seconds: dict[str, float]
    """
    Duration of each stage.
    """
    map: NotRequired[dict[str, list[int]] | None]
    """
    Shapes of the arrays of its map to new points, by name; null without a map.
    """
    links: dict[str, str]
    """
    URLs of related resources.
    """


class EstimateOut(TypedDict):
    """Expected cost of an embedding, and whether the service accepts it."""

    method: str
    parameters: dict[str, Any]
    """
    Every parameter with its value.
    """
    n: int
    d: int
    seconds: float | None
    """
    Expected on one core of a typical machine; null if it is infeasible.
    """
    bytes: float | None
    """
    Expected peak of the working memory; null if it is infeasible.
    """
    growth: str
    """
    Growth of the time with n.
    """
    allowed_seconds: float
    """
    Limit on the expected time of a job.
    """
    allowed_bytes: int
    """
    Limit on its expected memory.
    """
    most_points: int | None
    """
    Largest number of points with d features within both limits, at most n; null if there is none.
    """
    problem: ProblemOut | None
    """
    Reason for a refusal; null if it is accepted.
    """


class JobOut(TypedDict):
    """A job: a fit, draws, or an analysis."""

    id: str
    kind: Literal[
        "fit",
        "draws",
        "summary",
        "transform",
        "reconstructions",
        "calibration",
        "advice",
        "estimate",
        "embedding",
        "placement",
        "spread",
        "comparison",
        "picture",
    ]
    status: Literal["queued", "running", "cancelling", "cancelled", "succeeded", "failed"]
    progress: ProgressOut
    created: str
    """
    ISO 8601, UTC, like the other times.
    """
    started: str | None
    finished: str | None
    deadline: str | None
    """
    Time at which it fails unless it has ended.
    """
    priority: Literal["interactive", "batch"]
    """
    An interactive job does not wait for batches.
    """
    posterior: str | None
    """
    Id of the posterior it fits or uses; null if it is about a data set.
    """
    dataset: str | None
    """
    Id of the data set in the request, to fit, embed, transform or advise on; else null. Inline points have the id that they would have as a data set.
    """
    request: dict[str, Any]
    """
    The request.
    """
    error: ProblemOut | None
    """
    Problem of a failed job.
    """
    links: dict[str, str]
    """
    URLs of related resources; `result` once there is one.
    """


class JobPage(TypedDict):
    """Jobs, the newest first."""

    next: str | None
    """
    Value of ?cursor= for the next page; null on the last.
    """
    unreadable: NotRequired[list[str]]
    """
    Ids of records that have no JSON, and are left out; each can be deleted.
    """
    items: list[JobOut]


class MethodOut(TypedDict):
    """Method."""

    name: str
    """
    Name in requests.
    """
    title: str
    description: str
    parameters: dict[str, Any]
    """
    JSON Schema of its request.
    """
    makes: Literal["posterior", "embedding"]
    """
    Result of its request: a posterior to draw from, or one embedding.
    """
    family: str
    growth: str
    """
    Growth of its time with n.
    """
    needs_labels: bool
    """
    Whether it needs the class of each point.
    """
    random: bool
    """
    Whether it has a seed that changes the embedding.
    """
    has_map: bool
    """
    Whether its results place new points: POST .../transform.
    """
    reproducible: bool
    """
    Whether the same request has the same bits on every processor; else the last digits depend on BLAS kernels and the mathematical library.
    """
    available: bool
    """
    Whether its libraries are installed.
    """
    missing_extra: str | None
    """
    The extra of the package that installs them, if they are missing; else null.
    """
    variants: list[VariantOut]
    """
    Variants of a posterior's law; empty for embeddings.
    """
    citations: list[str]
    """
    Publications.
    """
    links: dict[str, str]
    """
    `self`, and `create`: the path to POST the request to.
    """


class PlacedOut(TypedDict):
    """New points, placed in an embedding by its map."""

    dataset: str
    """
    Id of the new points.
    """
    embedding: str
    """
    Id of the embedding.
    """
    arrays: EmbeddingArraysOut


class PosteriorEstimateOut(TypedDict):
    """Expected cost of a posterior and of its draws, and whether the limits allow it."""

    dataset: str
    """
    Id of its data set.
    """
    spec: dict[str, Any]
    """
    Every parameter with its value.
    """
    n: int
    """
    Points.
    """
    d: int
    """
    Features that vary.
    """
    intrinsic_dimension: float
    """
    Maximum-likelihood estimate from neighbor distances. The cost of factors grows with it.
    """
    fit: CostOut
    """
    The fit.
    """
    stages: dict[str, float]
    """
    Seconds of the fit by stage.
    """
    draw: CostOut
    """
    One of many draws, and the memory of the process that draws.
    """
    single_draw_seconds: float
    """
    A draw alone, whose lanes have no other draws.
    """
    posterior_bytes: float
    """
    The posterior's arrays in the cache.
    """
    factor_entries: float
    """
    Stored entries of L and U of one draw.
    """
    factor_flops: float
    """
    Floating-point operations of one factorization.
    """
    analysed_points: list[int]
    """
    Sizes of the analysed graphs: that of all points, or of subsamples, from which the cost is extrapolated.
    """
    allowed_seconds: float
    """
    Limit on the expected time: half of GLLE_JOB_TIMEOUT.
    """
    allowed_bytes: int
    """
    Limit on the expected memory, GLLE_METHOD_BYTES.
    """
    most_points: int | None
    """
    Largest number of such points within the limits, at most n; null if there is none.
    """
    problem: ProblemOut | None
    """
    Reason why the limits do not allow it, with remedies; null if they do. POST /v1/posteriors refuses only a fit that cannot finish even on a machine of twice the speed.
    """


class ScoreList(TypedDict):
    """All scores."""

    items: list[ScoreOut]


class SpreadArraysOut(TypedDict):
    """Arrays of the movement of an embedding, a row for each point."""

    consensus: MatrixOut
    """
    (n, p), mean place over the half-samples, aligned to the embedding.
    """
    covariance: CubeOut
    """
    (n, p, p) of the place over the half-samples.
    """
    movement: VectorOut
    """
    (n,), the root of the trace of the covariance; no interval.
    """
    sampling_movement: VectorOut
    """
    (n,), the part of movement by the choice of points.
    """
    seed_movement: VectorOut
    """
    (n,), the part by the seed; 0 without one.
    """
    radius: VectorOut
    """
    (n,), of the disc about the consensus that holds half of the refits.
    """
    margin: NotRequired[VectorOut]
    """
    (n,), distance to the next point of another class, if there are several.
    """
    neighbor_stability: VectorOut
    """
    (n,), share of the neighbors that stay neighbors.
    """
    baseline: VectorOut
    """
    (n,), mean distance to the 10 nearest neighbors in the data.
    """
    classes: VectorOut
    """
    (n,), the class of each point, from 0 on.
    """


class SpreadOut(TypedDict):
    """Movement of an embedding over refits of its method."""

    dataset: str
    """
    Id of the data set of the embedding.
    """
    embedding: str
    """
    Id of the embedding.
    """
    method: str
    engine: str
    """
    Version of the engine's numbers.
    """
    seed: int
    """
    Of the choice of the halves.
    """
    labels: str | None
    """
    Data set with the classes; null for clusters of the embedding.
    """
    n_neighbors: int
    """
    Neighbors that may be kept.
    """
    figures: SpreadFiguresOut
    reliability: MovementReliabilityOut
    """
    Read it before ranks.
    """
    notes: list[NoteOut]
    """
    Doubts about the movement, with the remedy.
    """
    arrays: SpreadArraysOut


class SummaryArraysOut(TypedDict):
    """Arrays of a summary."""

    consensus: MatrixOut
    """
    (n, p), the mean place, after generalised Procrustes alignment.
    """
    covariance: CubeOut
    """
    (n, p, p) of the position of each point: the ensemble's, or over draws.
    """
    spread: VectorOut
    """
    (n,), the root of the trace of the covariance.
    """
    stability: VectorOut
    """
    (n,), the share of neighbors that stay neighbors.
    """
    local_trust: VectorOut
    """
    (n,), trustworthiness in the reference embedding.
    """
    draw_spread: NotRequired[VectorOut]
    """
    (n,), of the calibrated draws; this and all below of an ensemble only.
    """
    half_sample_spread: NotRequired[VectorOut]
    """
    (n,), of random halves of the data.
    """
    random_k_spread: NotRequired[VectorOut]
    """
    (n,), of random halves with random n_neighbors.
    """
    larger_sample_spread: NotRequired[VectorOut]
    """
    (n,), of random samples of 63.2 % of the data.
    """
    center: NotRequired[MatrixOut]
    """
    (n, p), of the regions: the reference embedding.
    """
    half_axes: NotRequired[CubeOut]
    """
    (n, p, p), half-axes of the regions of radius 1 in rows, longest first.
    """


class SummaryOut(TypedDict):
    """Spread of points over draws and resamples, or over draws alone."""

    engine: str
    """
    Version of the engine's numbers.
    """
    seed: int
    """
    Of the request, as for draws.
    """
    first: int
    """
    Of the request, as for draws.
    """
    scale: float
    """
    Of the request, as for draws.
    """
    source: Literal["posterior", "prior"]
    """
    Of the request, as for draws.
    """
    count: int
    """
    Number of draws.
    """
    calibrated: bool
    """
    Whether the scale is the calibrated one.
    """
    resamples: NotRequired[int]
    """
    Number of each of three kinds; this and the three below of an ensemble only.
    """
    regions: NotRequired[RegionsOut]
    """
    Around the centers, calibrated on held-out resamples.
    """
    reliability: NotRequired[ReliabilityOut]
    """
    Read it before regions and ranks.
    """
    quantiles: QuantilesOut
    notes: list[NoteOut]
    """
    A low reliability first; then findings of the fit and of the draws.
    """
    calibration: NotRequired[CalibrationFactsOut]
    """
    Of the scale of the draws.
    """
    spectrum: SpectrumOut
    arrays: SummaryArraysOut


class TransformArraysOut(TypedDict):
    """Arrays of new points."""

    embedding: MatrixOut
    """
    (m, p), positions in the reference embedding.
    """
    distances: VectorOut
    """
    (m,), to the nearest training point.
    """
    mean: NotRequired[MatrixOut]
    """
    (m, p) over the draws, if any.
    """
    covariance: NotRequired[CubeOut]
    """
    (m, p, p) over the draws, if any.
    """


class TransformOut(TypedDict):
    """New points in an embedding."""

    engine: str
    """
    Version of the engine's numbers.
    """
    seed: int
    """
    Of the request, as for draws.
    """
    first: int
    """
    Of the request, as for draws.
    """
    scale: float
    """
    Of the request, as for draws.
    """
    source: Literal["posterior", "prior"]
    """
    Of the request, as for draws.
    """
    dataset: str
    """
    Id of the new points.
    """
    draws: int
    """
    Number of draws; 0 for none.
    """
    arrays: TransformArraysOut


class CoordinatesOut(TypedDict):
    """Embedding with its coordinates, and its scores in the result of a job."""

    id: str
    """
    Digest of data set, method, all parameters, labels and engine version.
    """
    dataset: str
    """
    Id of its data set.
    """
    method: str
    parameters: dict[str, Any]
    """
    Every parameter with its value.
    """
    labels: str | None
    """
    Data set with the classes for a supervised method.
    """
    engine: str
    """
    Version of the engine.
    """
    n: int
    """
    Points.
    """
    eigenvalues: list[float] | None
    """
    Eigenvalues of spectral methods, in the order of the columns.
    """
    figures: dict[str, Any]
    """
    Figures of the method, such as log_likelihood and iterations.
    """
    notes: list[NoteOut]
    """
    Warnings and findings, with the remedy.
    """
    seconds: dict[str, float]
    """
    Duration of each stage.
    """
    map: NotRequired[dict[str, list[int]] | None]
    """
    Shapes of the arrays of its map to new points, by name; null without a map.
    """
    links: NotRequired[dict[str, str]]
    """
    URLs of related resources.
    """
    scores: NotRequired[dict[str, float]]
    """
    By name; absent if none were asked for.
    """
    truth: NotRequired[str | None]
    """
    Data set with the true coordinates.
    """
    n_neighbors: NotRequired[int]
    """
    Neighbors that the scores used.
    """
    arrays: EmbeddingArraysOut


JobResultOut: TypeAlias = (
    PosteriorOut
    | DrawsOut
    | SummaryOut
    | TransformOut
    | ReconstructionsOut
    | CalibrationOut
    | AdviceOut
    | EstimatedOut
    | CoordinatesOut
    | PlacedOut
    | SpreadOut
    | ComparisonOut
)
"""
Result of a job, by its `kind`.
"""


class MethodList(TypedDict):
    """All methods."""

    items: list[MethodOut]
