"""JSON of results: arrays, draws, analyses. The encoders stream it; these models describe it in the contract."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, RootModel

from glle_engine.audit.answers import Answer
from glle_engine.audit.result import Audit, Groups
from glle_engine.base.spec import Align, Metric, Source, Standardize
from glle_engine.posterior.cost.estimate import Cost
from glle_engine.posterior.selection import Advice, ComponentsRow, NeighborsRow
from glle_engine.reliability.alignment import Regions
from glle_engine.reliability.calibration import Calibration
from glle_engine.reliability.movement import Movement, MovementFigures
from glle_engine.reliability.statements import Reliability, SpreadReliability
from service.schemas.analyses import EmbeddingOut, NoteOut
from service.schemas.derived import (
    CubeOut,
    FlagsOut,
    Matrix,
    MatrixOut,
    PlacesOut,
    Row,
    VectorOut,
    absent,
    arrays_of,
    fields_of,
)
from service.schemas.problems import ProblemOut
from service.schemas.resources import LINKS, MAX_COUNTER, PosteriorOut

Index = Annotated[int, Field(ge=0, le=MAX_COUNTER)]
_OF_DRAWS = "Of the request, as for draws."


class DatasetValuesOut(MatrixOut):
    """The values of a data set (n, d), and its columns."""

    names: list[str] | None = Field(description="Names of the features.")
    labels: list[str | float | bool] | None = absent("Label of each point.")
    colors: list[float] | None = absent("Number of each point for its color.")
    coordinates: Matrix | None = absent("True coordinates of each point.")
    ids: list[str | int] | list[list[str | int]] | None = absent("Id of each point, or a row of several.")


class DrawOut(MatrixOut):
    """One draw (n, p)."""

    eigenvalues: Row = Field(description="p smallest eigenvalues above the constant eigenvector's.")
    seed: Index = Field(description="Stream of draws.")
    index: Index = Field(description="Index in the stream.")
    scale: float = Field(description="Factor on the covariance, also for auto.")
    source: Source = Field(description="Distribution of the weights.")
    align: Align = Field(description="Whether it is rotated to the reference embedding.")
    diagnostics: dict[str, Any] = Field(description="Solver, residual and findings of this draw.")
    notes: list[NoteOut] | None = absent("Doubts about the scale, with scale=auto and if there are any.")


class DrawAddressOut(BaseModel):
    """Place of a draw in its stream."""

    index: Index
    scale: float


class DrawsOut(BaseModel):
    """Draws (n_draws, n, p), or (scales, n_draws, n, p)."""

    shape: list[int] = Field(description="Lengths of the axes.")
    dtype: str = Field(description="numpy's name of the type.", examples=["float64"])
    data: list[Matrix] | list[list[Matrix]] = Field(description="Nested lists, the first axis outermost.")
    eigenvalues: Matrix | list[Matrix] = Field(description="Of each draw, with the same leading axes.")
    diagnostics: list[dict[str, Any]] = Field(description="Of each draw, scale by scale.")
    draws: list[DrawAddressOut] = Field(description="Index and scale of each draw, scale by scale.")
    notes: list[NoteOut] | None = absent("Doubts about the calibrated scale, with auto and if there are any.")


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
    agreement: Row = Field(description="Agreement of the span of a draw with the span of the reference.")


class SummaryArraysOut(BaseModel):
    """Arrays of a summary."""

    consensus: MatrixOut = Field(description="(n, p), the mean place, after generalised Procrustes alignment.")
    covariance: CubeOut = Field(description="(n, p, p) of the position of each point: the ensemble's, or over draws.")
    spread: VectorOut = Field(description="(n,), the root of the trace of the covariance.")
    stability: VectorOut = Field(description="(n,), the share of neighbors that stay neighbors.")
    local_trust: VectorOut = Field(description="(n,), trustworthiness in the reference embedding.")
    draw_spread: VectorOut | None = absent("(n,), of the calibrated draws; this and all below of an ensemble only.")
    half_sample_spread: VectorOut | None = absent("(n,), of random halves of the data.")
    random_k_spread: VectorOut | None = absent("(n,), of random halves with random n_neighbors.")
    larger_sample_spread: VectorOut | None = absent("(n,), of random samples of 63.2 % of the data.")
    center: MatrixOut | None = absent("(n, p), of the regions: the reference embedding.")
    half_axes: CubeOut | None = absent("(n, p, p), half-axes of the regions of radius 1 in rows, longest first.")


@fields_of(Calibration)
class CalibrationFactsOut(BaseModel):
    """Result of a calibration without its request."""

    notes: list[NoteOut] = Field(description="Doubts about the scale.")


@fields_of(Regions)
class RegionsOut(BaseModel):
    """Regions around the points: their half-axes are a radius times the half-axes of radius 1."""


@fields_of(SpreadReliability)
class ReliabilityOut(BaseModel):
    """Whether points can be ranked by their spread."""

    ceiling: float = Field(description="Root of the reliability.")


class SummaryOut(SampleOut):
    """Spread of points over draws and resamples, or over draws alone."""

    n_draws: int = Field(description="Number of draws.")
    calibrated: bool = Field(description="Whether the scale is the calibrated one.")
    n_resamples: int | None = absent("Number of each of three kinds; this and the three below of an ensemble only.")
    regions: RegionsOut | None = absent("Around the centers, calibrated on held-out resamples.")
    reliability: ReliabilityOut | None = absent("Read it before regions and ranks.")
    quantiles: QuantilesOut
    notes: list[NoteOut] = Field(description="A low reliability first; then findings of the fit and of the draws.")
    calibration: CalibrationFactsOut | None = absent("Of the scale of the draws.")
    spectrum: SpectrumOut
    arrays: SummaryArraysOut


class TransformArraysOut(BaseModel):
    """Arrays of new points."""

    embedding: MatrixOut = Field(description="(m, p), positions in the reference embedding.")
    distances: VectorOut = Field(description="(m,), to the nearest training point.")
    mean: MatrixOut | None = absent("(m, p) over the draws, if any.")
    covariance: CubeOut | None = absent("(m, p, p) over the draws, if any.")


class TransformOut(SampleOut):
    """New points in an embedding."""

    dataset: str = Field(description="Id of the new points.")
    n_draws: int = Field(description="Number of draws; 0 for none.")
    arrays: TransformArraysOut


class GeneratedArraysOut(BaseModel):
    """Arrays of generated data."""

    data: CubeOut = Field(description="(n_draws, n, d), a data set for each draw.")


class ReconstructionsOut(SampleOut):
    """Data generated from drawn weights."""

    n_draws: int = Field(description="Number of data sets.")
    arrays: GeneratedArraysOut


class TriplesOut(BaseModel):
    """Sparse matrix as triples."""

    rows: PlacesOut = Field(description="The points.")
    columns: PlacesOut = Field(description="The neighbor of each.")
    values: VectorOut = Field(description="The weight of the neighbor in the reconstruction of the point.")


class WeightsOut(SampleOut):
    """Reconstruction weights of the draw `first`."""

    shape: list[int] = Field(description="n and n, the size of the matrix.")
    arrays: TriplesOut


@arrays_of(Calibration)
class CalibrationArraysOut(BaseModel):
    """Arrays of a calibration."""


class CalibrationOut(CalibrationFactsOut):
    """Calibration of the scale."""

    engine: str = Field(description="Version of the engine's numbers.")
    n_resamples: int = Field(description="Number of random halves of the data.")
    n_draws: int = Field(description="Draws at each trial scale.")
    seed: Index = Field(description=_OF_DRAWS)
    arrays: CalibrationArraysOut


@fields_of(NeighborsRow)
class NeighborsRowOut(BaseModel):
    """Scores of one value of n_neighbors."""


@fields_of(ComponentsRow)
class ComponentsRowOut(BaseModel):
    """Spectral gap after one n_components."""


@fields_of(Advice)
class AdviceOut(BaseModel):
    """Judgement of n_neighbors and n_components."""


@fields_of(Cost)
class CostOut(BaseModel):
    """Expected cost on one core."""


class PosteriorEstimateOut(BaseModel):
    """Expected cost of a posterior and of its draws, and whether the limits allow it."""

    dataset: str = Field(description="Id of its data set.")
    spec: dict[str, Any] = Field(description="Every parameter with its value.")
    n: int = Field(description="Points.")
    n_features: int = Field(description="Features that vary.")
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
        description="Sizes of the analysed graphs: all points, or subsamples, from which the cost is extrapolated."
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


@fields_of(
    PosteriorEstimateOut,
    "n",
    "n_features",
    "spec",
    "fit",
    "stages",
    "draw",
    "single_draw_seconds",
    "posterior_bytes",
    "factor_entries",
    "factor_flops",
    "intrinsic_dimension",
)
class EstimatedOut(BaseModel):
    """Expected cost of a fit, without the limits: POST /v1/posteriors/estimate adds them."""

    search: list[float]
    factorization: dict[str, Any]


class EmbeddingArraysOut(BaseModel):
    """Arrays of an embedding."""

    embedding: MatrixOut = Field(description="(n, p).")


class CoordinatesOut(EmbeddingOut):
    """Embedding with its coordinates, and its scores in the result of a job."""

    links: dict[str, str] | None = absent(LINKS)  # type: ignore[assignment] # absent in results
    scores: dict[str, float] | None = absent("By name; absent if none were asked for.")
    truth: str | None = Field(default=None, description="Data set with the true coordinates.")
    score_neighbors: int | None = absent("Neighbors that the scores used.")
    arrays: EmbeddingArraysOut


class PlacedOut(BaseModel):
    """New points, placed in an embedding by its map."""

    dataset: str = Field(description="Id of the new points.")
    embedding: str = Field(description="Id of the embedding.")
    arrays: EmbeddingArraysOut


@fields_of(MovementFigures)
class SpreadFiguresOut(BaseModel):
    """Figures of the movement of an embedding."""


@arrays_of(Movement)
class SpreadArraysOut(BaseModel):
    """Arrays of the movement of an embedding, a row for each point."""

    margin: VectorOut | None = absent("Distance to the nearest point of another class, if there are several.")


@fields_of(Reliability)
class MovementReliabilityOut(BaseModel):
    """Whether half-samples rank points alike by their movement."""

    ceiling: float = Field(description="Root of the reliability.")


@fields_of(Movement)
class SpreadOut(BaseModel):
    """Movement of an embedding over refits of its method."""

    dataset: str = Field(description="Id of the data set of the embedding.")
    embedding: str = Field(description="Id of the embedding.")
    method: str
    engine: str = Field(description="Version of the engine's numbers.")
    seed: Index = Field(description="Of the choice of the halves.")
    labels: str | None = Field(description="Data set with the classes; null for clusters of the embedding.")
    n_neighbors: int = Field(description="Neighbors that may be kept.")
    arrays: SpreadArraysOut


@fields_of(Answer, "share", "error")
class AnswerOut(BaseModel):
    """Share of a map that another sample would show."""

    of_islands: list[float] | None = Field(description="The same for each island; null for the arrangement.")


class IslandsOut(BaseModel):
    """Islands of a map, the largest one first; a single one has nothing beside it."""

    share: float | None = Field(
        description="Mean share of the halves in which the islands are isolated; null for one island, and for "
        "coordinates alone."
    )
    error: float | None = Field(description="Standard error of the share over pairs of halves.")
    names: list[str] = Field(description="A, B, and so on.")
    sizes: list[int] = Field(description="Points of each island.")
    outside: int = Field(description="Points in no island, in clumps too small to judge: -1 in the array `island`.")
    in_data: list[bool] = Field(description="Whether its points are isolated in the data, too.")
    in_samples: list[float] | None = Field(description="Share of halves in which it is isolated; null alone.")
    stays: list[bool] = Field(description="Whether to trust it: isolated in seven of eight halves, and in the data.")
    is_cut: list[bool] = Field(description="Whether the method cuts it: isolated in halves, and not in the data.")


@fields_of(Groups, "names", "apart")
class GroupsOut(BaseModel):
    """Groups of labeled points in the maps of other samples."""

    names: list[str] | list[int] = Field(description="The labels, ascending.")
    apart: Matrix = Field(description="Share of pictures in which two groups are apart.")


class SeamOut(BaseModel):
    """Two regions that a map tears apart, or lays onto each other."""

    kind: Literal["tear", "fold"]
    sizes: list[int] = Field(description="Points on both sides.")
    islands: list[int] = Field(description="Index of the island of most points of each side.")
    score: float = Field(description="Mean stretch of the points of a tear, or mean squeeze of the points of a fold.")


class AuditArraysOut(BaseModel):
    """Arrays of an audit, a row for each point. npz also has the sparse matrix of neighbors."""

    embedding: MatrixOut = Field(description="(n, p), the audited coordinates.")
    island: VectorOut = Field(description="(n,), index of the island of each point.")
    neighborhood: VectorOut | None = absent("(n,), share of its neighbors that remain, beyond chance in its island.")
    stretch: VectorOut = Field(description="(n,), distance in the map to its neighbors in other samples; 1 is usual.")
    squeeze: VectorOut = Field(description="(n,), distance in other samples to its neighbors in the map; 1 is usual.")
    is_torn: FlagsOut = Field(description="(n,), points that the map tears off their neighbors.")
    is_glued: FlagsOut = Field(description="(n,), points beside others that are not their neighbors.")
    seam: VectorOut = Field(description="(n,), j and -j on both sides of seam j, from 1 on; 0 for most points.")
    p_value: VectorOut | None = absent("(n,), of each neighborhood against chance; if chance can be decided.")
    is_point_beyond: FlagsOut | None = absent("(n,), points beyond chance, at a false-discovery rate of 10 %.")
    spread: VectorOut | None = absent("(n,), over samples; this and all below not of coordinates alone.")
    stability: VectorOut | None = absent("(n,), probability that neighbors are neighbors in another sample.")
    half_axes: CubeOut | None = absent("(n, p, p), half-axes of all regions at radius 1 in rows, longest first.")
    member_probability: VectorOut | None = absent("(n,), of most neighbors being of the point's group; with labels.")


@fields_of(
    Audit, "verdict", "level", "is_preliminary", "beyond_chance", "remains", "remains_error", "dimension", "pairs"
)
class AuditOut(BaseModel):
    """What the data support of a map. A partial result has the same members."""

    engine: str = Field(description="Version of the engine's numbers.")
    dataset: str = Field(description="Id of the data.")
    subject: str = Field(
        description="Id of the embedding, the posterior, or the data set of the coordinates; else of the data."
    )
    method: str | None = Field(description="Method of the map; null for coordinates alone.")
    standardize: Standardize | None = Field(description="Of the features; null if a parameter of the map says it.")
    metric: Metric | None = Field(description="Of the distances; null as standardize.")
    labels: str | None = Field(description="Data set with the groups; null for none.")
    blocks: str | None = Field(description="Column or data set with the blocks; null for none.")
    n_neighbors: int = Field(description="Neighbors that were compared.")
    seed: Index = Field(description="Of permutations and halves.")
    islands: IslandsOut = Field(description="Islands of the map, and whether the data have them.")
    arrangement: AnswerOut | None = Field(description="Places of the islands; null for fewer than three, and alone.")
    neighborhoods: AnswerOut | None = Field(description="Near points; null for coordinates alone.")
    shape: AnswerOut | None = Field(description="Form of the islands; null for coordinates alone.")
    tears: list[list[int]] = Field(description="Pairs of points that are neighbors and lie far apart in the map.")
    seams: list[SeamOut] = Field(description="Tears and folds with two sides, the largest first.")
    groups: GroupsOut | None = Field(description="Null without labels.")
    regions: dict[str, RegionsOut] = Field(description="Around the coordinates: mean, and new sample; none alone.")
    notes: list[NoteOut]
    arrays: AuditArraysOut


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
        description="With n_resamples: how much of its picture remains over halves; null if it could not be refitted.",
    )
    problem: ProblemOut | None = Field(description="Why the method has no embedding; null if it has one.")
    notes: list[NoteOut]
    links: dict[str, str] = Field(description=LINKS)


class ComparisonOut(BaseModel):
    """Several methods with the same scores."""

    dataset: str
    labels: str | None
    truth: str | None
    score_neighbors: int = Field(description="Neighbors that the scores used.")
    engine: str
    align: Literal["first", "truth"] | None
    aligned_to: str | None = Field(description="Label of the row, or truth.")
    n_resamples: int | None = absent("Half-samples of each method, if any.")
    spread_labels: str | None = Field(
        default=None, description="With n_resamples: data set of the classes; null for the clusters of each embedding."
    )
    rows: list[ComparedOut]
    arrays: dict[str, MatrixOut] | None = absent("With align: the embeddings by label.")


class JobResultOut(
    RootModel[
        PosteriorOut
        | DrawsOut
        | SummaryOut
        | TransformOut
        | ReconstructionsOut
        | WeightsOut
        | CalibrationOut
        | AdviceOut
        | EstimatedOut
        | CoordinatesOut
        | PlacedOut
        | SpreadOut
        | AuditOut
        | ComparisonOut
    ]
):
    """Result of a job, by its `kind`."""
