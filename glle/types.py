"""Requests and responses of the API. Generated from openapi.json by openapi/client_types.py; do not edit."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

NNeighbor: TypeAlias = int


class AdviceIn(TypedDict):
    """A range of parameters to judge on a data set."""

    dataset: str
    """
    Id of a data set.
    """
    n_neighbors: NotRequired[list[NNeighbor] | None]
    """
    The range of k; 5, 6, 7, 8, 10, 12, 15, 20, 25, 30 unless told.
    """
    n_components: NotRequired[int]
    """
    p of the embeddings that are scored.
    """
    max_components: NotRequired[int]
    """
    How far the spectrum is looked at.
    """
    reg: NotRequired[float]
    """
    The ridge of LLE, as in a posterior.
    """


class CalibrationIn(TypedDict):
    """How closely the scale is to be calibrated."""

    half_samples: NotRequired[int]
    """
    Random halves of the data.
    """
    draws: NotRequired[int]
    """
    Draws at each scale that is tried.
    """
    seed: NotRequired[int]
    """
    Stream of draws.
    """


class CheckOut(TypedDict):
    """One of the things that must be well."""

    name: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    """
    What was found.
    """


class ComparedIn(TypedDict):
    """A method to compare."""

    method: str
    """
    Name of an embedding method: GET /v1/methods.
    """
    parameters: NotRequired[dict[str, Any]]
    """
    Of the method, by name; what is left out has its default. GET /v1/methods has their schemas.
    """
    label: NotRequired[str | None]
    """
    What its row is called; unless told the method's name, numbered from its second row on.
    """


class ComparisonIn(TypedDict):
    """Methods to compare on one data set."""

    dataset: str
    """
    Id of a data set.
    """
    labels: NotRequired[str | None]
    """
    Id of a data set that tells the class of each point: the labels kept with it, else its one column. For supervised methods, and for scores that need them.
    """
    truth: NotRequired[str | None]
    """
    Id of a data set that tells the true coordinates: those kept with it (of a synthetic one its own id will do), else its values. For scores that need them.
    """
    scores: NotRequired[list[str] | None]
    """
    Names of GET /v1/scores; unless told all that labels and truth allow, those that are limited to `most_points` up to a tenth of it; none with [].
    """
    n_neighbors: NotRequired[int | None]
    """
    Neighbours that the scores look at; unless told 10, or fewer for few points.
    """
    methods: list[ComparedIn]
    """
    A row each, in their order.
    """
    align: NotRequired[Literal["first", "truth"] | None]
    """
    Also return the embeddings, turned and scaled to the first that succeeds, or to the truth.
    """


class DatasetOut(TypedDict):
    """A data set."""

    id: str
    """
    Made of the digest, and of the tenant: the same content has the same id.
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
    Whether a label of each point is kept with it.
    """
    has_color: bool
    """
    Whether a number of each point, to colour it by, is kept with it.
    """
    has_coordinates: bool
    """
    Whether the true coordinates are known.
    """
    source: dict[str, Any]
    """
    Where it came from.
    """
    created: str
    """
    ISO 8601, UTC.
    """
    name: str | None
    """
    What PATCH called it; no part of its content.
    """
    tags: list[str]
    """
    Likewise.
    """
    links: dict[str, str]
    """
    Where to go from here.
    """


class DatasetPage(TypedDict):
    """Data sets, the newest first."""

    next: str | None
    """
    Give this as ?cursor= for the next page; null on the last.
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
    Factor on the covariance; auto: the one that half-sampling suggests; 1 unless told.
    """
    scales: NotRequired[list[float | Literal["auto"]] | None]
    """
    Several factors: an axis of the result.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Which law of the weights to draw from.
    """
    align: NotRequired[Literal["procrustes", "none"]]
    """
    Rotate to the reference embedding, or not.
    """
    priority: NotRequired[Literal["interactive", "batch"]]
    """
    interactive: before every batch, for draws that take no longer than a shard.
    """


class EmbeddingIn(TypedDict):
    """An embedding to make."""

    method: str
    """
    Name of an embedding method: GET /v1/methods.
    """
    parameters: NotRequired[dict[str, Any]]
    """
    Of the method, by name; what is left out has its default. GET /v1/methods has their schemas.
    """
    dataset: str
    """
    Id of a data set.
    """
    labels: NotRequired[str | None]
    """
    Id of a data set that tells the class of each point: the labels kept with it, else its one column. For supervised methods, and for scores that need them.
    """
    truth: NotRequired[str | None]
    """
    Id of a data set that tells the true coordinates: those kept with it (of a synthetic one its own id will do), else its values. For scores that need them.
    """
    scores: NotRequired[list[str] | None]
    """
    Names of GET /v1/scores; unless told all that labels and truth allow, those that are limited to `most_points` up to a tenth of it; none with [].
    """
    n_neighbors: NotRequired[int | None]
    """
    Neighbours that the scores look at; unless told 10, or fewer for few points.
    """


class EstimateIn(TypedDict):
    """An embedding whose cost is asked for: of a data set that is there, or of one of so many points and features."""

    method: str
    """
    Name of an embedding method: GET /v1/methods.
    """
    parameters: NotRequired[dict[str, Any]]
    """
    Of the method, by name; what is left out has its default. GET /v1/methods has their schemas.
    """
    dataset: NotRequired[str | None]
    """
    Id of a data set.
    """
    n: NotRequired[int | None]
    """
    Points, without a data set.
    """
    d: NotRequired[int | None]
    """
    Features, without a data set.
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
    """A JSON merge patch (RFC 7396): null takes away, what is absent stays."""

    name: NotRequired[str | None]
    """
    At most 200 characters on one line.
    """
    tags: NotRequired[Tags | Tags1]
    """
    At most 20, of at most 50 characters each.
    """


class NoteOut(TypedDict):
    """Something the user should know."""

    code: str
    message: str


class NumericsOut(TypedDict):
    """A numerics kind of live workers: all its results have the same bits."""

    numbers: str
    """
    Version of the numbers; for another kind than the pinned one, `+` and a digest.
    """
    pinned: bool
    """
    Whether reference results have the pinned bits of this version.
    """
    workers: int
    """
    Workers that gave a sign of life lately.
    """


class PosteriorIn(TypedDict):
    """A posterior to fit: a data set and the parameters of the engine's `FitSpec`."""

    dataset: str
    """
    Id of a data set.
    """
    method: NotRequired[Literal["em", "direct"]]
    """
    GLLE Algorithm 1 (em) or 2 (direct).
    """
    variant: NotRequired[Literal["constrained", "published"]]
    """
    Weights that sum to one, or the equations as published.
    """
    n_neighbors: NotRequired[int]
    """
    k, the neighbours of a point.
    """
    n_components: NotRequired[int]
    """
    p, the dimension of the embedding.
    """
    reg: NotRequired[float]
    """
    Ratio of noise to prior variance (the ridge of LLE).
    """
    variance: NotRequired[Literal["auto", "dirichlet", "ml"]]
    """
    Noise variance of the constrained variant: of flat Dirichlet weights, or of the residuals (ml). Auto is dirichlet if the residuals lie in fewer than n_neighbors - 1 directions (the figure residual_dimension) or the noise is tangent, else ml.
    """
    mean: NotRequired[Literal["lle", "derived"]]
    """
    Mean of the direct posterior.
    """
    covariance: NotRequired[Literal["spherical", "full", "full-corrected"]]
    """
    M-step of the published em: one variance a point (Eq. 29), a full covariance as printed (the zero of Eq. 26), or the true maximum of Eq. 23 (full-corrected).
    """
    max_iter: NotRequired[int]
    """
    Most iterations of the published em; no effect outside it.
    """
    tol: NotRequired[float]
    """
    Relative change that ends them; 0 runs exactly max_iter iterations.
    """
    disconnected: NotRequired[Literal["refuse", "bridge"]]
    """
    A graph that is not whole: an error, or bridged by its shortest edges.
    """
    noise: NotRequired[Literal["isotropic", "tangent"]]
    """
    Reconstruction noise of the constrained variant: alike, or along the sheet.
    """
    neighborhoods: NotRequired[Literal["fixed", "adaptive"]]
    """
    All n_neighbors candidates of a point, or those near its tangent plane (constrained, isotropic).
    """
    search: NotRequired[Literal["exact", "approximate"]]
    """
    How neighbours are found; approximate is for many points of many features, needs faiss on the workers, and tells the share it found.
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
    `figures` of the fit, and `notes` on what is remarkable.
    """
    eigenvalues: list[float]
    """
    Bottom of the spectrum, one beyond the embedding's.
    """
    seconds: float
    """
    Time of the fit.
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
    Versions and machine: what a replay needs.
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
    What PATCH called it.
    """
    tags: list[str]
    """
    Likewise.
    """
    links: dict[str, str]
    """
    Where to go from here.
    """


class PosteriorPage(TypedDict):
    """Posteriors, the newest first."""

    next: str | None
    """
    Give this as ?cursor= for the next page; null on the last.
    """
    items: list[PosteriorOut]


class ProblemOut(TypedDict):
    """What went wrong, and what to do about it."""

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
    """How far a job is."""

    done: int
    total: int
    stage: str
    """
    What is being done; but for draws, done and total count within it.
    """
    eta: float | None
    """
    Seconds until done is total, at the rate so far: the end of draws, else of the stage; or null.
    """


class ReadyOut(TypedDict):
    """The service can do its work."""

    status: NotRequired[Literal["ok", "degraded"]]
    """
    degraded: a check has a warning.
    """
    workers: NotRequired[int | None]
    """
    Workers that gave a sign of life lately; with a key.
    """
    queue_length: NotRequired[int | None]
    """
    Tasks that wait; with a key.
    """
    checks: NotRequired[list[CheckOut] | None]
    """
    What was looked at; with a key.
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
    Factor on the covariance; 0 is LLE itself.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Which law of the weights to draw from.
    """
    count: int
    """
    How many, one a draw.
    """


class ScoreOut(TypedDict):
    """A score of embeddings."""

    name: str
    title: str
    about: str
    needs: Literal["nothing", "labels", "truth"]
    """
    What it needs beside data and embedding.
    """
    better: Literal["higher", "lower"]
    most_points: int | None
    """
    It is not made of more.
    """
    growth: str
    """
    How its time grows with n.
    """
    reproducible: bool
    """
    Whether it has the same bits on every processor.
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
    """A sheet to sample."""

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
    Standard deviation of the noise, relative to the sheet.
    """
    seed: NotRequired[int]
    """
    The same seed gives the same points.
    """


class TransformIn(TypedDict):
    """New points to place, as a data set or inline, and the draws to place them in."""

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
    Factor on the covariance; 0 is LLE itself.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Which law of the weights to draw from.
    """
    dataset: NotRequired[str | None]
    """
    Id of a data set: the new points.
    """
    data: NotRequired[list[list[float]] | None]
    """
    A few new points, a row each, kept with the job alone. The whole body: 64 KB.
    """
    draws: NotRequired[int]
    """
    Draws for mean and covariance of each place: none, or at least two.
    """


class VariantOut(TypedDict):
    """Variant of a method."""

    name: str
    description: str


class SyntheticOptions(TypedDict):
    """Keyword arguments, of `SyntheticIn`."""

    noise: NotRequired[float]
    """
    Standard deviation of the noise, relative to the sheet.
    """
    seed: NotRequired[int]
    """
    The same seed gives the same points.
    """


class FitOptions(TypedDict):
    """Keyword arguments, of `PosteriorIn`."""

    method: NotRequired[Literal["em", "direct"]]
    """
    GLLE Algorithm 1 (em) or 2 (direct).
    """
    variant: NotRequired[Literal["constrained", "published"]]
    """
    Weights that sum to one, or the equations as published.
    """
    n_neighbors: NotRequired[int]
    """
    k, the neighbours of a point.
    """
    n_components: NotRequired[int]
    """
    p, the dimension of the embedding.
    """
    reg: NotRequired[float]
    """
    Ratio of noise to prior variance (the ridge of LLE).
    """
    variance: NotRequired[Literal["auto", "dirichlet", "ml"]]
    """
    Noise variance of the constrained variant: of flat Dirichlet weights, or of the residuals (ml). Auto is dirichlet if the residuals lie in fewer than n_neighbors - 1 directions (the figure residual_dimension) or the noise is tangent, else ml.
    """
    mean: NotRequired[Literal["lle", "derived"]]
    """
    Mean of the direct posterior.
    """
    covariance: NotRequired[Literal["spherical", "full", "full-corrected"]]
    """
    M-step of the published em: one variance a point (Eq. 29), a full covariance as printed (the zero of Eq. 26), or the true maximum of Eq. 23 (full-corrected).
    """
    max_iter: NotRequired[int]
    """
    Most iterations of the published em; no effect outside it.
    """
    tol: NotRequired[float]
    """
    Relative change that ends them; 0 runs exactly max_iter iterations.
    """
    disconnected: NotRequired[Literal["refuse", "bridge"]]
    """
    A graph that is not whole: an error, or bridged by its shortest edges.
    """
    noise: NotRequired[Literal["isotropic", "tangent"]]
    """
    Reconstruction noise of the constrained variant: alike, or along the sheet.
    """
    neighborhoods: NotRequired[Literal["fixed", "adaptive"]]
    """
    All n_neighbors candidates of a point, or those near its tangent plane (constrained, isotropic).
    """
    search: NotRequired[Literal["exact", "approximate"]]
    """
    How neighbours are found; approximate is for many points of many features, needs faiss on the workers, and tells the share it found.
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
    Factor on the covariance; auto: the one that half-sampling suggests; 1 unless told.
    """
    scales: NotRequired[list[float | Literal["auto"]] | None]
    """
    Several factors: an axis of the result.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Which law of the weights to draw from.
    """
    align: NotRequired[Literal["procrustes", "none"]]
    """
    Rotate to the reference embedding, or not.
    """
    priority: NotRequired[Literal["interactive", "batch"]]
    """
    interactive: before every batch, for draws that take no longer than a shard.
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
    Factor on the covariance; 0 is LLE itself.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Which law of the weights to draw from.
    """
    draws: NotRequired[int]
    """
    Draws for mean and covariance of each place: none, or at least two.
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
    Factor on the covariance; 0 is LLE itself.
    """
    source: NotRequired[Literal["posterior", "prior"]]
    """
    Which law of the weights to draw from.
    """


class CalibrationOptions(TypedDict):
    """Keyword arguments, of `CalibrationIn`."""

    half_samples: NotRequired[int]
    """
    Random halves of the data.
    """
    draws: NotRequired[int]
    """
    Draws at each scale that is tried.
    """
    seed: NotRequired[int]
    """
    Stream of draws.
    """


class AdviceOptions(TypedDict):
    """Keyword arguments, of `AdviceIn`."""

    n_neighbors: NotRequired[list[NNeighbor] | None]
    """
    The range of k; 5, 6, 7, 8, 10, 12, 15, 20, 25, 30 unless told.
    """
    n_components: NotRequired[int]
    """
    p of the embeddings that are scored.
    """
    max_components: NotRequired[int]
    """
    How far the spectrum is looked at.
    """
    reg: NotRequired[float]
    """
    The ridge of LLE, as in a posterior.
    """


class CompareOptions(TypedDict):
    """Keyword arguments, of `ComparisonIn`."""

    scores: NotRequired[list[str] | None]
    """
    Names of GET /v1/scores; unless told all that labels and truth allow, those that are limited to `most_points` up to a tenth of it; none with [].
    """
    n_neighbors: NotRequired[int | None]
    """
    Neighbours that the scores look at; unless told 10, or fewer for few points.
    """
    align: NotRequired[Literal["first", "truth"] | None]
    """
    Also return the embeddings, turned and scaled to the first that succeeds, or to the truth.
    """


class DatasetsOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/datasets."""

    tag: NotRequired[list[str]]
    """
    Only those with this tag; repeated: with all of them.
    """
    name: NotRequired[str | None]
    """
    Only those of this name.
    """


class PosteriorsOptions(TypedDict):
    """Keyword arguments, the query of GET /v1/posteriors."""

    tag: NotRequired[list[str]]
    """
    Only those with this tag; repeated: with all of them.
    """
    name: NotRequired[str | None]
    """
    Only those of this name.
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
            "embedding",
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


class EmbeddingOut(TypedDict):
    """An embedding, but for its coordinates."""

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
    The data set of the classes that a supervised method had.
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
    Of spectral methods, in the order of the columns.
    """
    figures: dict[str, Any]
    """
    What the method found out: log_likelihood, iterations and so on.
    """
    notes: list[NoteOut]
    """
    What is remarkable, with the remedy.
    """
    seconds: dict[str, float]
    """
    Time by stage, when it was made.
    """
    links: dict[str, str]
    """
    Where to go from here.
    """


class EstimateOut(TypedDict):
    """What an embedding is expected to take, and whether it would be made."""

    method: str
    parameters: dict[str, Any]
    """
    Every parameter with its value.
    """
    n: int
    d: int
    seconds: float | None
    """
    Expected on one core of a usual machine; null where it cannot be done.
    """
    bytes: float | None
    """
    Working memory at its peak, likewise.
    """
    growth: str
    """
    How the time grows with n.
    """
    allowed_seconds: float
    """
    What a job may be expected to take.
    """
    allowed_bytes: int
    """
    What its memory may be expected to be.
    """
    most_points: int | None
    """
    Points of as many features that would be within both; n, if n is; null: not even few.
    """
    problem: ProblemOut | None
    """
    Why it would be refused; null when it would be made.
    """


class InfoOut(TypedDict):
    """What this service is and allows."""

    name: str
    versions: dict[str, str]
    """
    Of the engine and what it stands on.
    """
    limits: dict[str, int | float]
    """
    The settings that a request can run into; quota 0: none.
    """
    manifolds: list[str]
    """
    Names for POST /v1/datasets/synthetic.
    """
    posterior_defaults: dict[str, Any]
    """
    The parameters of POST /v1/posteriors.
    """
    numerics: list[NumericsOut] | None
    """
    The numerics kinds of the live workers; null where the queue's Redis does not answer.
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
        "embedding",
        "comparison",
        "picture",
    ]
    status: Literal["queued", "running", "cancelling", "cancelled", "succeeded", "failed"]
    progress: ProgressOut
    created: str
    """
    ISO 8601, UTC, as the times below.
    """
    started: str | None
    finished: str | None
    deadline: str | None
    """
    When it fails unless it has ended.
    """
    priority: Literal["interactive", "batch"]
    """
    interactive: someone waits, so it goes before every batch.
    """
    posterior: str | None
    """
    Id of the posterior it fits or uses; null where it is about a data set.
    """
    dataset: str | None
    """
    Id of the data set that was named: to fit, to embed, to transform, to advise on; else null. Of points that came inline the id that they would have as a data set.
    """
    request: dict[str, Any]
    """
    What was asked for.
    """
    error: ProblemOut | None
    """
    The problem a failed job ended with.
    """
    links: dict[str, str]
    """
    Where to go from here; `result` once there is one.
    """


class JobPage(TypedDict):
    """Jobs, the newest first."""

    next: str | None
    """
    Give this as ?cursor= for the next page; null on the last.
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


class ScoreList(TypedDict):
    """All scores."""

    items: list[ScoreOut]


class MethodList(TypedDict):
    """All methods."""

    items: list[MethodOut]
