"""JSON of results: arrays, draws, analyses. The encoders stream it; these models describe it in the contract."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, RootModel

from glle_engine.base.spec import Align, Source
from service.schemas.embeddings import EmbeddingOut, NoteOut
from service.schemas.problems import ProblemOut
from service.schemas.resources import LINKS, MAX_COUNTER, PosteriorOut

Row = list[float]
Matrix = list[Row]
T = TypeVar("T")

Index = Annotated[int, Field(ge=0, le=MAX_COUNTER)]
_OF_DRAWS = "Of the request, as for draws."


def _optional(description: str) -> Any:
    """Return a member that can be absent, but not null."""

    def without_default(schema: dict[str, Any]) -> None:
        schema.pop("default", None)
        kinds = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:
            schema.update(kinds[0])
        elif kinds:
            schema["anyOf"] = kinds

    return Field(default=None, description=description, json_schema_extra=without_default)


class _ArrayOut(BaseModel, Generic[T]):
    shape: list[int] = Field(description="Lengths of the axes.")
    dtype: str = Field(description="numpy's name of the type.", examples=["float64"])
    data: T = Field(description="Nested lists, the first axis outermost.")


class ArrayOut(_ArrayOut[list[Any]]):
    """An array of any number of axes."""


class VectorOut(_ArrayOut[Row]):
    """An array of one axis."""


class MatrixOut(_ArrayOut[Matrix]):
    """An array of two axes."""


class CubeOut(_ArrayOut[list[Matrix]]):
    """An array of three axes."""


class DatasetValuesOut(MatrixOut):
    """The values of a data set (n, d), and its columns."""

    names: list[str] | None = Field(description="Names of the features.")
    labels: list[str | float | bool] | None = _optional("Label of each point.")
    color: list[float] | None = _optional("Number of each point for its color.")
    coordinates: Matrix | None = _optional("True coordinates of each point.")
    ids: list[str | int] | list[list[str | int]] | None = _optional("Id of each point, or a row of several.")


class DrawOut(MatrixOut):
    """One draw (n, p)."""

    eigenvalues: Row = Field(description="p smallest eigenvalues above the constant eigenvector's.")
    seed: Index = Field(description="Stream of draws.")
    index: Index = Field(description="Index in the stream.")
    scale: float = Field(description="Factor on the covariance, also for auto.")
    source: Source = Field(description="Law of the weights.")
    align: Align = Field(description="Whether it is rotated to the reference embedding.")
    diagnostics: dict[str, Any] = Field(description="Solver, residual and findings of this draw.")
    notes: list[NoteOut] | None = _optional("Doubts about the scale, with scale=auto and if there are any.")


class DrawAddressOut(BaseModel):
    """Place of a draw in its stream."""

    index: Index
    scale: float


class DrawsOut(BaseModel):
    """Draws (count, n, p), or (scales, count, n, p)."""

    shape: list[int] = Field(description="Lengths of the axes.")
    dtype: str = Field(description="numpy's name of the type.", examples=["float64"])
    data: list[Matrix] | list[list[Matrix]] = Field(description="Nested lists, the first axis outermost.")
    eigenvalues: Matrix | list[Matrix] = Field(description="Of each draw, with the same leading axes.")
    diagnostics: list[dict[str, Any]] = Field(description="Of each draw, scale by scale.")
    draws: list[DrawAddressOut] = Field(description="Index and scale of each draw, scale by scale.")
    notes: list[NoteOut] | None = _optional("Doubts about the calibrated scale, with auto and if there are any.")


class SampleOut(BaseModel):
    """Draws that an analysis took."""

    engine: str = Field(description="Version of the engine's numbers.")
    seed: Index = Field(description=_OF_DRAWS)
    first: Index = Field(description=_OF_DRAWS)
    scale: float = Field(description=_OF_DRAWS)
    source: Source = Field(description=_OF_DRAWS)


class QuantilesOut(BaseModel):
    """Quantiles over the points."""

    levels: Row
    spread: Row
    stability: Row
    local_trust: Row


class SpectrumOut(BaseModel):
    """Spectra of the draws, a row each."""

    eigenvalues: Matrix
    relative_gaps: list[float | None] = Field(description="Null if the solver did not estimate the next eigenvalue.")
    agreement: Row = Field(description="Agreement of the span of a draw with that of the reference.")


class SummaryArraysOut(BaseModel):
    """Arrays of a summary."""

    consensus: MatrixOut = Field(description="(n, p), the mean place, after generalised Procrustes alignment.")
    covariance: CubeOut = Field(description="(n, p, p) of the position of each point: the ensemble's, or over draws.")
    spread: VectorOut = Field(description="(n,), the root of the trace of the covariance.")
    stability: VectorOut = Field(description="(n,), the share of neighbors that stay neighbors.")
    local_trust: VectorOut = Field(description="(n,), trustworthiness in the reference embedding.")
    draw_spread: VectorOut | None = _optional("(n,), of the calibrated draws; this and all below of an ensemble only.")
    half_sample_spread: VectorOut | None = _optional("(n,), of random halves of the data.")
    random_k_spread: VectorOut | None = _optional("(n,), of random halves with random n_neighbors.")
    larger_sample_spread: VectorOut | None = _optional("(n,), of random samples of 63.2 % of the data.")
    center: MatrixOut | None = _optional("(n, p), of the regions: the reference embedding.")
    half_axes: CubeOut | None = _optional("(n, p, p), half-axes of the regions of radius 1 in rows, longest first.")


class CalibrationFactsOut(BaseModel):
    """Result of a calibration without its request."""

    scale: float = Field(description="Scale at which draws spread as half-samples do.")
    ratio: float = Field(description="Median spread of draws at the scale over that of half-samples.")
    rank_correlation: float = Field(description="Spearman's, between the two spreads over points.")
    slope: float | None = Field(description="Of spread over scale in logarithms; null if scale 1 was right at once.")
    saturated: bool = Field(description="Whether the spread hardly depends on the scale.")
    trace: list[Row] = Field(description="Pairs of scale and ratio, in the order of their evaluation.")
    notes: list[NoteOut] = Field(description="Doubts about the scale.")


class RegionsOut(BaseModel):
    """Regions around the points: their half-axes are a radius times those of radius 1."""

    levels: Row = Field(description="Share of the places of a point that its region holds, on average over the points.")
    radii: Row = Field(description="Radius for each level.")


class ReliabilityOut(BaseModel):
    """Whether points can be ranked by their spread."""

    level: Literal["high", "moderate", "low"] = Field(description="The statement in one word.")
    reason: str = Field(description="The statement in one or two sentences.")
    expected: float = Field(description="Expected rank correlation of the spread with that over new samples.")
    reliability: float = Field(description="Of the spread over the embeddings, by random halves of them.")
    ceiling: float = Field(description="Root of the reliability.")
    reproducibility: float = Field(description="Of the spread of 20 resamples of one kind.")
    agreement: float = Field(description="Rank correlation of the spread of draws with that of resamples.")
    saturated: bool = Field(description="Whether the scale of the draws could not be identified.")


class SummaryOut(SampleOut):
    """Spread of points over draws and resamples, or over draws alone."""

    count: int = Field(description="Number of draws.")
    calibrated: bool = Field(description="Whether the scale is the calibrated one.")
    resamples: int | None = _optional("Number of each of three kinds; this and the three below of an ensemble only.")
    regions: RegionsOut | None = _optional("Around the centers, calibrated on held-out resamples.")
    reliability: ReliabilityOut | None = _optional("Read it before regions and ranks.")
    quantiles: QuantilesOut
    notes: list[NoteOut] = Field(description="A low reliability first; then findings of the fit and of the draws.")
    calibration: CalibrationFactsOut | None = _optional("Of the scale of the draws.")
    spectrum: SpectrumOut
    arrays: SummaryArraysOut


class TransformArraysOut(BaseModel):
    """Arrays of new points."""

    embedding: MatrixOut = Field(description="(m, p), positions in the reference embedding.")
    distances: VectorOut = Field(description="(m,), to the nearest training point.")
    mean: MatrixOut | None = _optional("(m, p) over the draws, if any.")
    covariance: CubeOut | None = _optional("(m, p, p) over the draws, if any.")


class TransformOut(SampleOut):
    """New points in an embedding."""

    dataset: str = Field(description="Id of the new points.")
    draws: int = Field(description="Number of draws; 0 for none.")
    arrays: TransformArraysOut


class GeneratedArraysOut(BaseModel):
    """Arrays of generated data."""

    data: CubeOut = Field(description="(count, n, d), a data set for each draw.")


class ReconstructionsOut(SampleOut):
    """Data generated from drawn weights."""

    count: int = Field(description="Number of data sets.")
    arrays: GeneratedArraysOut


class CalibrationArraysOut(BaseModel):
    """Arrays of a calibration."""

    half_sample_spread: VectorOut = Field(description="(n,), of each point over half-samples.")
    draw_spread: VectorOut = Field(description="(n,), of each point over draws at the scale.")


class CalibrationOut(CalibrationFactsOut):
    """Calibration of the scale."""

    engine: str = Field(description="Version of the engine's numbers.")
    half_samples: int = Field(description="Number of random halves of the data.")
    draws: int = Field(description="Draws at each trial scale.")
    seed: Index = Field(description=_OF_DRAWS)
    arrays: CalibrationArraysOut


class NeighborsRowOut(BaseModel):
    """Quality of one n_neighbors."""

    n_neighbors: int
    components: int = Field(description="Components of the graph.")
    closed_classes: int
    reconstruction_error: float
    trustworthiness: float | None = Field(description="Null with several components, like the next two.")
    continuity: float | None
    instability: float | None


class ComponentsRowOut(BaseModel):
    """Spectral gap after one n_components."""

    n_components: int
    eigenvalue: float
    relative_gap: float = Field(description="Near 0, this coordinate and the next can swap.")


class AdviceOut(BaseModel):
    """Judgement of n_neighbors and n_components."""

    n_neighbors: int | None = Field(description="Suggestion; null if no graph of the range is connected.")
    n_components: int | None = Field(description="Suggestion at that n_neighbors, or null.")
    intrinsic_dimension: float
    neighbors_curve: list[NeighborsRowOut]
    components_curve: list[ComponentsRowOut]
    notes: list[NoteOut] = Field(description="Reasons of the suggestions.")


class CostOut(BaseModel):
    """Expected cost on one core."""

    seconds: float
    bytes: float = Field(description="Peak of the working memory, without the data.")


class PosteriorEstimateOut(BaseModel):
    """Expected cost of a posterior and of its draws, and whether the limits allow it."""

    dataset: str = Field(description="Id of its data set.")
    spec: dict[str, Any] = Field(description="Every parameter with its value.")
    n: int = Field(description="Points.")
    d: int = Field(description="Features that vary.")
    intrinsic_dimension: float = Field(
        description="Maximum-likelihood estimate from neighbor distances. The cost of factors grows with it."
    )
    fit: CostOut = Field(description="The fit.")
    stages: dict[str, float] = Field(description="Seconds of the fit by stage.")
    draw: CostOut = Field(description="One of many draws, and the memory of the process that draws.")
    single_draw_seconds: float = Field(description="A draw alone, whose lanes have no other draws.")
    posterior_bytes: float = Field(description="The posterior's arrays in the cache.")
    factor_entries: float = Field(description="Stored entries of L and U of one draw.")
    factor_flops: float = Field(description="Floating-point operations of one factorization.")
    analysed_points: list[int] = Field(
        description="Sizes of the analysed graphs: that of all points, or of subsamples, from which the cost is "
        "extrapolated."
    )
    allowed_seconds: float = Field(description="Limit on the expected time: half of GLLE_JOB_TIMEOUT.")
    allowed_bytes: int = Field(description="Limit on the expected memory, GLLE_METHOD_BYTES.")
    most_points: int | None = Field(
        description="Largest number of such points within the limits, at most n; null if there is none."
    )
    problem: ProblemOut | None = Field(
        description="Reason why the limits do not allow it, with remedies; null if they do. POST /v1/posteriors "
        "refuses only a fit that cannot finish even on a machine of twice the speed."
    )


class EstimatedOut(BaseModel):
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


class EmbeddingArraysOut(BaseModel):
    """Arrays of an embedding."""

    embedding: MatrixOut = Field(description="(n, p).")


class CoordinatesOut(EmbeddingOut):
    """Embedding with its coordinates, and its scores in the result of a job."""

    links: dict[str, str] | None = _optional(LINKS)  # type: ignore[assignment] # absent in results
    scores: dict[str, float] | None = _optional("By name; absent if none were asked for.")
    truth: str | None = Field(default=None, description="Data set with the true coordinates.")
    n_neighbors: int | None = _optional("Neighbors that the scores used.")
    arrays: EmbeddingArraysOut


class PlacedOut(BaseModel):
    """New points, placed in an embedding by its map."""

    dataset: str = Field(description="Id of the new points.")
    embedding: str = Field(description="Id of the embedding.")
    arrays: EmbeddingArraysOut


class SpreadFiguresOut(BaseModel):
    """Figures of the movement of an embedding."""

    half_samples: int = Field(description="Half-samples that were embedded.")
    share: float = Field(description="Of the points in each sample.")
    refits: int = Field(description="Refits with other seeds.")
    failed: int = Field(description="Half-samples that could not be embedded, and are left out.")
    n_neighbors: int = Field(description="Neighbors that may be kept.")
    median_movement: float = Field(description="In the unit of the embedding.")
    relative_movement: float = Field(description="The same over the root mean square radius of the embedding.")
    seed_share: float = Field(description="Share of the variance that refits with other seeds explain.")
    pairs_kept: float = Field(description="Share of neighbor pairs of the embedding that stay neighbors.")
    pairs_by_chance: float = Field(description="The same of noise.")
    cluster_stability: float = Field(description="Mean adjusted Rand index of the clusters; 0 is chance.")
    classes: Literal["labels", "clusters"] = Field(description="What the classes are.")
    n_classes: int
    separated: float | None = Field(
        description="Share of points whose disc of half the refits is smaller than the distance to the next class; "
        "null with one class."
    )
    baseline_correlation: float | None = Field(
        description="Spearman's, of movement with the mean distance to the 10 nearest neighbors in the data."
    )


class SpreadArraysOut(BaseModel):
    """Arrays of the movement of an embedding, a row for each point."""

    consensus: MatrixOut = Field(description="(n, p), mean place over the half-samples, aligned to the embedding.")
    covariance: CubeOut = Field(description="(n, p, p) of the place over the half-samples.")
    movement: VectorOut = Field(description="(n,), the root of the trace of the covariance; no interval.")
    sampling_movement: VectorOut = Field(description="(n,), the part of movement by the choice of points.")
    seed_movement: VectorOut = Field(description="(n,), the part by the seed; 0 without one.")
    radius: VectorOut = Field(description="(n,), of the disc about the consensus that holds half of the refits.")
    margin: VectorOut | None = _optional("(n,), distance to the next point of another class, if there are several.")
    neighbor_stability: VectorOut = Field(description="(n,), share of the neighbors that stay neighbors.")
    baseline: VectorOut = Field(description="(n,), mean distance to the 10 nearest neighbors in the data.")
    classes: VectorOut = Field(description="(n,), the class of each point, from 0 on.")


class MovementReliabilityOut(BaseModel):
    """Whether half-samples rank points alike by their movement."""

    level: Literal["high", "moderate", "low"] = Field(description="The statement in one word.")
    reason: str = Field(description="The statement in one or two sentences.")
    reliability: float = Field(description="Of the movement over its half-samples, by random halves of them.")
    ceiling: float = Field(description="Root of the reliability.")
    reproducibility: float = Field(description="Of the movement over 20 half-samples.")


class SpreadOut(BaseModel):
    """Movement of an embedding over refits of its method."""

    dataset: str = Field(description="Id of the data set of the embedding.")
    embedding: str = Field(description="Id of the embedding.")
    method: str
    engine: str = Field(description="Version of the engine's numbers.")
    seed: Index = Field(description="Of the choice of the halves.")
    labels: str | None = Field(description="Data set with the classes; null for clusters of the embedding.")
    n_neighbors: int = Field(description="Neighbors that may be kept.")
    figures: SpreadFiguresOut
    reliability: MovementReliabilityOut = Field(description="Read it before ranks.")
    notes: list[NoteOut] = Field(description="Doubts about the movement, with the remedy.")
    arrays: SpreadArraysOut


class ComparedOut(BaseModel):
    """Row of a comparison."""

    label: str
    method: str
    parameters: dict[str, Any] = Field(description="Every parameter with its value.")
    embedding: str | None = Field(description="Id of the embedding; null without one, like the next members.")
    seconds: dict[str, float] | None
    eigenvalues: Row | None
    figures: dict[str, Any] | None
    scores: dict[str, float] | None
    spread: SpreadFiguresOut | None = Field(
        default=None,
        description="With spread: how much of its picture remains over half-samples; null if it could not be refitted.",
    )
    problem: ProblemOut | None = Field(description="Why the method has no embedding; null if it has one.")
    notes: list[NoteOut]
    links: dict[str, str] = Field(description=LINKS)


class ComparisonOut(BaseModel):
    """Several methods with the same scores."""

    dataset: str
    labels: str | None
    truth: str | None
    n_neighbors: int
    engine: str
    align: Literal["first", "truth"] | None
    aligned_to: str | None = Field(description="Label of the row, or truth.")
    spread: int | None = _optional("Half-samples of each method, if any.")
    spread_labels: str | None = Field(
        default=None, description="With spread: data set of the classes; null for the clusters of each embedding."
    )
    rows: list[ComparedOut]
    arrays: dict[str, MatrixOut] | None = _optional("With align: the embeddings by label.")


class JobResultOut(
    RootModel[
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
    ]
):
    """Result of a job, by its `kind`."""
