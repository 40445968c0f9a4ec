"""Response models of results: arrays, draws, analyses. The encoders write this JSON; the models only document it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, RootModel

from glle_engine.audit.answers import Answer
from glle_engine.audit.groups import Groups
from glle_engine.audit.result import Audit
from glle_engine.audit.statement import Asks
from glle_engine.base.spec import Align, Metric, Source, Standardize
from glle_engine.reliability.alignment import Regions
from glle_engine.reliability.calibration import Calibration
from service.schemas.analyses import EmbeddingOut
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
from service.schemas.problems import LineOut, NoteOut, ProblemOut, WayOut
from service.schemas.resources import LINKS, MAX_COUNTER, PosteriorOut

Index = Annotated[int, Field(ge=0, le=MAX_COUNTER)]
_OF_DRAWS = "As in the request for draws."


class DatasetValuesOut(MatrixOut):
    """The values of a data set (n, d), and its columns."""

    names: list[str] | None = Field(description="Names of the features.")
    labels: list[str | float | bool] | None = absent("Label of each point.")
    colors: list[float] | None = absent("Number of each point for its color.")
    coordinates: Matrix | None = absent("True coordinates of each point.")
    ids: list[str | int] | list[list[str | int]] | None = absent("Id of each point, or a row of several.")


class DrawOut(MatrixOut):
    """One embedding (n, p) drawn from a posterior."""

    eigenvalues: Row = Field(description="p smallest eigenvalues above the constant eigenvector's.")
    seed: Index = Field(description="Seed of the random numbers.")
    index: Index = Field(description="Index among the draws with this seed.")
    scale: float = Field(description="Factor on the covariance, also for auto.")
    source: Source = Field(description="Distribution of the weights.")
    align: Align = Field(description="Whether it is rotated to the reference embedding.")
    diagnostics: dict[str, Any] = Field(description="Solver, residual and findings of this draw.")
    notes: list[NoteOut] | None = absent("Doubts about the scale, with scale=auto and if there are any.")


class DrawAddressOut(BaseModel):
    """Which draw this is: its index among the draws with the seed of the request, and its scale."""

    index: Index
    scale: float


class DrawsOut(BaseModel):
    """Embeddings drawn from a posterior: (n_draws, n, p), or (scales, n_draws, n, p) if the request lists scales."""

    shape: list[int] = Field(description="Lengths of the axes.")
    dtype: str = Field(description="numpy's name of the type.", examples=["float64"])
    data: list[Matrix] | list[list[Matrix]] = Field(description="Nested lists, the first axis outermost.")
    eigenvalues: Matrix | list[Matrix] = Field(description="Of each draw, with the same leading axes.")
    diagnostics: list[dict[str, Any]] = Field(description="Of each draw, scale by scale.")
    draws: list[DrawAddressOut] = Field(description="Index and scale of each draw, scale by scale.")
    notes: list[NoteOut] | None = absent("Doubts about the calibrated scale, with auto and if there are any.")


class SampleOut(BaseModel):
    """Which draws of a posterior an analysis used."""

    engine: str = Field(description="Version of the engine's numbers.")
    seed: Index = Field(description=_OF_DRAWS)
    first: Index = Field(description=_OF_DRAWS)
    scale: float = Field(description=_OF_DRAWS)
    source: Source = Field(description=_OF_DRAWS)


class QuantilesOut(BaseModel):
    """Quantiles, over the points, of three arrays of a summary: one number for each of the `levels`."""

    levels: Row
    spread: Row
    stability: Row
    local_trust: Row


class SpectrumOut(BaseModel):
    """Eigenvalues of the draws that a summary describes, with one row for each draw."""

    eigenvalues: Matrix
    relative_gaps: list[float | None] = Field(description="Null if the solver did not estimate the next eigenvalue.")
    agreement: Row = Field(description="Agreement of the span of a draw with the span of the reference.")


class SummaryArraysOut(BaseModel):
    """Arrays of a summary of draws, with a row for each point."""

    consensus: MatrixOut = Field(description="(n, p), the mean position, after generalized Procrustes alignment.")
    covariance: CubeOut = Field(description="(n, p, p) of the position of each point over the draws.")
    spread: VectorOut = Field(description="(n,), the root of the trace of the covariance.")
    stability: VectorOut = Field(description="(n,), the share of neighbors that stay neighbors.")
    local_trust: VectorOut = Field(description="(n,), trustworthiness in the reference embedding.")
    half_sample_spread: VectorOut | None = absent("(n,), of random halves of the data, with a calibrated scale.")


@fields_of(Calibration)
class CalibrationFactsOut(BaseModel):
    """Outcome of a calibration of the scale of a posterior's draws, without its arrays."""

    notes: list[NoteOut] = Field(description="Doubts about the scale.")


@fields_of(Regions)
class RegionsOut(BaseModel):
    """Ellipses, or ellipsoids, around the points of an embedding, for each of several levels.

    The regions of the level 0.9 contain 90 % of the resampled positions of their points. The half-axes of the regions
    of a level are the array `half_axes`, multiplied by the radius of this level.
    """


class SummaryOut(SampleOut):
    """Summary of a posterior's draws: how far each point moves from draw to draw."""

    n_draws: int = Field(description="Number of draws.")
    calibrated: bool = Field(description="Whether the scale is the calibrated one.")
    quantiles: QuantilesOut
    notes: list[NoteOut] = Field(description="Findings of the fit, of the calibration and of the draws.")
    calibration: CalibrationFactsOut | None = absent(
        "Calibration of the scale of the draws, if the scale is calibrated."
    )
    spectrum: SpectrumOut
    arrays: SummaryArraysOut


class TransformArraysOut(BaseModel):
    """Positions of new points, with a row for each point."""

    embedding: MatrixOut = Field(description="(m, p), positions in the reference embedding.")
    distances: VectorOut = Field(description="(m,), to the nearest training point.")
    mean: MatrixOut | None = absent("(m, p) over the draws, if any.")
    covariance: CubeOut | None = absent("(m, p, p) over the draws, if any.")


class TransformOut(SampleOut):
    """New points, embedded by their LLE weights on the training points of a posterior."""

    dataset: str = Field(description="Id of the new points.")
    n_draws: int = Field(description="Number of draws; 0 for none.")
    arrays: TransformArraysOut


class GeneratedArraysOut(BaseModel):
    """Generated data sets, one for each draw."""

    data: CubeOut = Field(description="(n_draws, n, d), a data set for each draw.")


class ReconstructionsOut(SampleOut):
    """Data sets generated from drawn reconstruction weights."""

    n_draws: int = Field(description="Number of data sets.")
    arrays: GeneratedArraysOut


class TriplesOut(BaseModel):
    """Sparse matrix as three vectors of equal length: the row, the column and the value of each entry."""

    rows: PlacesOut = Field(description="The points.")
    columns: PlacesOut = Field(description="The neighbor of each.")
    values: VectorOut = Field(description="The weight of the neighbor in the reconstruction of the point.")


class WeightsOut(SampleOut):
    """Reconstruction weights of one draw, as a sparse matrix (n, n)."""

    shape: list[int] = Field(description="n and n, the size of the matrix.")
    arrays: TriplesOut


@arrays_of(Calibration)
class CalibrationArraysOut(BaseModel):
    """The spread of each point over embeddings of random halves of the data, and its spread over draws."""


class CalibrationOut(CalibrationFactsOut):
    """Result of a calibration of the scale of a posterior's draws."""

    engine: str = Field(description="Version of the engine's numbers.")
    n_resamples: int = Field(description="Number of random halves of the data.")
    n_draws: int = Field(description="Draws at each trial scale.")
    seed: Index = Field(description=_OF_DRAWS)
    arrays: CalibrationArraysOut


class EmbeddingArraysOut(BaseModel):
    """The coordinates of an embedding."""

    embedding: MatrixOut = Field(description="(n, p).")


class CoordinatesOut(EmbeddingOut):
    """An embedding with its coordinates; the result of a job also has the scores."""

    links: dict[str, str] | None = absent(LINKS)  # type: ignore[assignment] # absent in results
    scores: dict[str, float] | None = absent("By name; absent if none were asked for.")
    truth: str | None = Field(default=None, description="Data set with the true coordinates.")
    score_neighbors: int | None = absent("Neighbors that the scores used.")
    arrays: EmbeddingArraysOut


class PlacedOut(BaseModel):
    """Positions of new points in an embedding, computed by the embedding's map."""

    dataset: str = Field(description="Id of the new points.")
    embedding: str = Field(description="Id of the embedding.")
    arrays: EmbeddingArraysOut


@fields_of(Answer, "share", "error")
class AnswerOut(BaseModel):
    """How much of one aspect of a map (such as its neighborhoods) another sample would show, from 0 to 1."""

    of_islands: list[float] | None = Field(description="The share of each island; null for the arrangement.")


class IslandsOut(BaseModel):
    """Islands (separate groups of points) of a map, the largest one first."""

    share: float | None = Field(
        description="Share of the halves of the data in which an island is isolated, averaged over the islands; null "
        "for one island, and for coordinates alone."
    )
    error: float | None = Field(description="Standard error of the share over pairs of halves.")
    names: list[str] = Field(description="A, B, and so on.")
    sizes: list[int] = Field(description="Points of each island.")
    outside: int = Field(description="Points of no island, in groups too small to judge: -1 in the array `island`.")
    in_data: list[bool] = Field(description="Whether the island is isolated in the data, too.")
    in_samples: list[float] | None = Field(
        description="Share of halves in which the island is isolated; null for coordinates alone."
    )
    stays: list[bool] = Field(description="Whether to trust it: isolated in 80 % of the halves, and in the data.")
    is_cut: list[bool] = Field(description="Whether the method cuts it off: isolated in halves, but not in the data.")


@fields_of(Groups, "names", "apart")
class GroupsOut(BaseModel):
    """In which share of the maps of random halves of the data the groups of points with equal labels stay apart."""

    names: list[str] | list[int] = Field(description="The labels, ascending.")
    apart: Matrix = Field(description="Share of maps in which two groups are apart.")


class SeamOut(BaseModel):
    """Two regions of points that a map tears apart, or lays onto each other."""

    kind: Literal["tear", "fold"]
    sizes: list[int] = Field(description="Points on both sides.")
    islands: list[int] = Field(description="Index of the island of most points of each side.")
    score: float = Field(description="Mean stretch of the points of a tear, or mean squeeze of the points of a fold.")


class AuditArraysOut(BaseModel):
    """Arrays of an audit, a row for each point; npz also has the sparse matrix of the probabilities of neighbors."""

    embedding: MatrixOut = Field(description="(n, p), the audited coordinates.")
    island: VectorOut = Field(description="(n,), index of each point's island; -1: a group too small to judge.")
    neighborhood: VectorOut | None = absent("(n,), share of its neighbors that remain, beyond chance in its island.")
    stretch: VectorOut = Field(description="(n,), distance in the map to its neighbors in other samples; 1 is usual.")
    squeeze: VectorOut = Field(description="(n,), distance in other samples to its neighbors in the map; 1 is usual.")
    is_torn: FlagsOut = Field(description="(n,), points that the map tears off their neighbors.")
    is_glued: FlagsOut = Field(
        description="(n,), points that the map puts next to points that are not their neighbors."
    )
    seam: VectorOut = Field(description="(n,), j and -j on both sides of seam j, from 1 on; 0 for most points.")
    p_value: VectorOut | None = absent("(n,), of each neighborhood against chance; absent if chance cannot be decided.")
    is_point_beyond: FlagsOut | None = absent("(n,), points beyond chance, at a false-discovery rate of 10 %.")
    spread: VectorOut | None = absent("(n,), over samples; this and the arrays below are absent for coordinates alone.")
    stability: VectorOut | None = absent("(n,), probability that neighbors are neighbors in another sample.")
    half_axes: CubeOut | None = absent("(n, p, p), half-axes of all regions at radius 1 in rows, longest first.")
    member_probability: VectorOut | None = absent("(n,), of most neighbors being of the point's group; with labels.")


@fields_of(
    Audit,
    "verdict",
    "level",
    "how",
    "is_preliminary",
    "beyond_chance",
    "remains",
    "remains_error",
    "dimension",
    "pairs",
)
class AuditOut(BaseModel):
    """Audit of a map: how far the data support its structure. A partial result has the same members."""

    engine: str = Field(description="Version of the engine's numbers.")
    dataset: str = Field(description="Id of the data.")
    subject: str = Field(
        description="Id of the embedding, the posterior, or the data set of the coordinates; else of the data."
    )
    method: str | None = Field(description="Method of the map; null for coordinates alone.")
    standardize: Standardize | None = Field(
        description="Standardization of the features; null if it is a parameter of the map."
    )
    metric: Metric | None = Field(description="Metric of the distances; null as standardize.")
    labels: str | None = Field(description="Data set with the groups; null for none.")
    blocks: str | None = Field(description="Column or data set with the blocks; null for none.")
    score_neighbors: int = Field(description="Neighbors that were compared.")
    seed: Index = Field(description="Seed of permutations and halves.")
    lines: list[LineOut] = Field(description="The verdict by lines.")
    how: str = Field(description="How the verdict was found; empty for coordinates alone.")
    asks: Asks | None = Field(description="What the verdict asks for: the method, features on one scale, or blocks.")
    islands: IslandsOut = Field(description="Islands of the map, and whether the data have them.")
    arrangement: AnswerOut | None = Field(
        description="Positions of the islands; null for fewer than three, and for coordinates alone."
    )
    neighborhoods: AnswerOut | None = Field(description="Neighbors of the points; null for coordinates alone.")
    shape: AnswerOut | None = Field(description="Shape of the islands; null for coordinates alone.")
    tears: list[list[int]] = Field(description="Pairs of points that are neighbors and lie far apart in the map.")
    seams: list[SeamOut] = Field(description="Tears and folds with two sides, the largest first.")
    groups: GroupsOut | None = Field(description="Null without labels.")
    regions: dict[str, RegionsOut] = Field(
        description="Around the coordinates: `mean` and `new sample`; none for coordinates alone."
    )
    notes: list[NoteOut]
    arrays: AuditArraysOut


class MapFactsOut(BaseModel):
    """Measures of a map from which a comparison decides which map to show."""

    kept: float = Field(
        description="Share of a point's 15 neighbors in ten principal components that the map keeps, beyond chance."
    )
    straight: float | None = Field(
        description="Rank correlation of distances in maps of halves of the data with Euclidean distances in the data."
    )
    along: float | None = Field(description="The same with geodesic distances: paths over nearest neighbors.")
    islands: int = Field(description="Islands of the map.")
    trusted: int = Field(description="Islands that can be trusted.")
    grouped: float = Field(description="Share of the points on trusted islands.")


class ComparedOut(BaseModel):
    """Row of a comparison: one method with its embedding, scores and audit, or the problem that prevented them."""

    label: str
    title: str = Field(description="Name for use in sentences.")
    method: str
    parameters: dict[str, Any] = Field(description="Every parameter with its value.")
    embedding: str | None = Field(description="Id of the embedding; null without one, like the next members.")
    seconds: dict[str, float] | None
    eigenvalues: Row | None
    figures: dict[str, Any] | None
    scores: dict[str, float] | None
    problem: ProblemOut | None = Field(description="Why the method has no embedding; null if it has one.")
    notes: list[NoteOut]
    level: Literal["trust", "partly", "no", "unknown"] | None = Field(
        default=None, description="Level of its audit; this and the members below are null without audits."
    )
    verdict: str | None = Field(default=None, description="Verdict of its audit.")
    lines: list[LineOut] | None = Field(default=None, description="The verdict by lines.")
    is_preliminary: bool = Field(default=False, description="Whether its audit stopped early, or has not ended yet.")
    remains: float | None = Field(default=None, description="R^2 over samples, as in an audit.")
    facts: MapFactsOut | None = Field(default=None, description="The measures that decide the questions.")
    links: dict[str, str] = Field(description=LINKS)


class BestOut(BaseModel):
    """The map to show, by its label: for neighbors, for distances, and for groups; null if no map will do."""

    neighbors: str | None = Field(description="Which points are neighbors.")
    layout: str | None = Field(description="Distances across the map.")
    groups: str | None = Field(description="Which groups of points there are.")


class AsGoodOut(BaseModel):
    """The labels of the maps that are as good as the one in `best`: for neighbors, for distances, and for groups."""

    neighbors: list[str]
    layout: list[str]
    groups: list[str]


class ComparisonOut(BaseModel):
    """Several maps of the same data, and which of them to show."""

    best: BestOut | None = absent("Which map to show; this and the next two with audits.")
    as_good: AsGoodOut | None = absent("Maps that are as good.")
    asks: Asks | None = Field(default=None, description="What the audits of all maps ask for before one is shown.")
    sentences: list[str] | None = absent("What the audits ask for, and the answers in words.")
    sentence_parts: list[list[str | WayOut]] | None = absent("Each sentence in parts, as in `message_parts`.")
    standardize: str | None = Field(default=None, description="Standardization of the features.")
    metric: str | None = Field(default=None, description="Metric of the distances.")

    dataset: str
    labels: str | None
    truth: str | None
    score_neighbors: int = Field(description="Neighbors that the scores used.")
    engine: str
    align: Literal["first", "truth"] | None
    aligned_to: str | None = Field(description="Label of the row, or truth.")
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
        | CoordinatesOut
        | PlacedOut
        | AuditOut
        | ComparisonOut
    ]
):
    """Result of a job: an audit, draws or another result, as the `kind` of the job says."""
