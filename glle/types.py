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


class CostOut(TypedDict):
    """Expected cost on one core."""

    seconds: float
    bytes: float
    """
    Peak of the working memory, without the data.
    """


class DatasetOut(TypedDict):
    """A data set."""

    id: str
    """
    Derived from the digest and the tenant, so that equal content has an equal id.
    """
    sha256: str
    """
    Digest of shape, dtype, values, names, labels and coordinates.
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
    items: list[DatasetOut]


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
    interactive draws run before every batch; they may take no longer than a shard.
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


class LiveOut(TypedDict):
    """The process runs."""

    status: NotRequired[Literal["ok"]]


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


class NoteOut(TypedDict):
    """Warning or finding."""

    code: str
    message: str


class NumericsOut(TypedDict):
    """Numerics kind of live workers, whose results have the same bits."""

    numbers: str
    """
    Version of the numbers; with `+` and a digest for a kind other than the pinned one.
    """
    pinned: bool
    """
    Whether reference results have the pinned bits of this version.
    """
    workers: int
    """
    Workers with a recent heartbeat.
    """


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
    disconnected: NotRequired[Literal["refuse", "bridge"]]
    """
    Refuse a graph of several components, or bridge components and closed classes by their shortest edges.
    """
    noise: NotRequired[Literal["isotropic", "tangent"]]
    """
    Reconstruction noise of the constrained variant: equal in all directions, or larger off the sheet (tangent), for noisy data, few neighbors and many features.
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


class PosteriorOut(TypedDict):
    """A fitted posterior."""

    id: str
    """
    Digest of data set, specification and engine version.
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
    Every parameter with its value.
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
    Versions and machine, for a replay.
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
    Waiting tasks; with a key only.
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


class VariantOut(TypedDict):
    """Variant of a method."""

    name: str
    description: str


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
    disconnected: NotRequired[Literal["refuse", "bridge"]]
    """
    Refuse a graph of several components, or bridge components and closed classes by their shortest edges.
    """
    noise: NotRequired[Literal["isotropic", "tangent"]]
    """
    Reconstruction noise of the constrained variant: equal in all directions, or larger off the sheet (tangent), for noisy data, few neighbors and many features.
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
    interactive draws run before every batch; they may take no longer than a shard.
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
    Columns that name the rows, by names or patterns: set apart.
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
    scale: NotRequired[float | Literal["auto"]]
    """
    Factor on the covariance; auto: the scale that half-sampling suggests.
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
    problem: ProblemOut | None
    """
    Why an upload would be refused; null if it would not.
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
    numerics: list[NumericsOut] | None
    """
    Numerics kinds of the live workers; null if the queue's Redis does not answer.
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
    An interactive job runs before every batch.
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
    Limit on the expected time: that of a job over GLLE_COST_MARGIN.
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
    Reason why the limits do not allow it, with remedies; null if they do. POST /v1/posteriors refuses only a fit that cannot finish even on a machine of GLLE_COST_MARGIN times the speed.
    """


class ScoreList(TypedDict):
    """All scores."""

    items: list[ScoreOut]


class MethodList(TypedDict):
    """All methods."""

    items: list[MethodOut]
