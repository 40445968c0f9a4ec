"""Request and response models of data sets, posteriors, draws, jobs and the service itself."""

from dataclasses import asdict, fields
from typing import Annotated, Any, Literal, Self, get_type_hints

import numpy as np
from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model, model_validator

from glle_engine import FitSpec, manifolds
from glle_engine.base.parameters import Parameter
from glle_engine.base.spec import Align, Source
from glle_engine.posterior.fit import with_neighbors
from glle_engine.tables.table import Table
from service.schemas.addresses import address
from service.schemas.problems import NoteOut, ProblemOut
from worker.analyses.embedding import EmbeddingSpec
from worker.base.problems import Problem
from worker.jobs.store import Job, Kind, Status
from worker.records.job import Priority
from worker.storage.datasets import Dataset
from worker.storage.posteriors import PosteriorRecord

PREVIEW_ROWS = 5
# A preview shows points of at most PREVIEW_BYTES bytes; each point counts PREVIEW_ROW_BYTES besides its values.
PREVIEW_BYTES, PREVIEW_ROW_BYTES = 2**22, 64
MAX_COUNTER = 2**64 - 1  # seeds and indices are 64-bit inputs of a counter-based random generator

Scale = Annotated[float, Field(ge=0, description="Factor on the covariance; 0 is LLE.")]
ScaleOrAuto = Scale | Literal["auto"]
Seed = Annotated[int, Field(ge=0, le=MAX_COUNTER, description="Seed of the random numbers.")]
LINKS = "URLs of related resources."
MERGE_PATCH = "application/merge-patch+json"
# A line without control characters and surrounding blanks, in code points, because regex dialects differ on blanks.
_LINE_PATTERN = r"^[^\x00-\x20\x7f-\xa0]([^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0])?$"


class CommandIn(BaseModel):
    """Base of JSON request bodies; pydantic refuses unknown members, numbers in quotes, and NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class SyntheticIn(CommandIn):
    """Request for points that are sampled from a synthetic manifold."""

    name: str = Field(description=f"One of {', '.join(manifolds.NAMES)}.", examples=["swiss_roll"])
    n: int = Field(default=1000, ge=1, description="Number of points.")
    noise: float = Field(
        default=0.0, ge=0, description="Standard deviation of the noise, relative to the manifold's size."
    )
    seed: int = Field(default=0, ge=0, le=MAX_COUNTER, description="The same seed gives the same points.")


def auto_of_none(value: object) -> object:
    """Return "auto" for None, and any other value unchanged."""
    return "auto" if value is None else value


def _field(parameter: Parameter, type_: Any, default: object) -> tuple[Any, Any]:
    """Return annotation and pydantic field for a parameter of the engine, with its bounds and description.

    A parameter that also takes words, such as auto, gets a union of number and words.
    """
    bounds = {"ge": parameter.minimum, "gt": parameter.above, "le": parameter.maximum, "lt": parameter.below}
    limits: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    if parameter.words and parameter.kind != "word":
        number: Any = {"integer": int, "number": float}[parameter.kind]
        type_, limits = Annotated[number, Field(**limits)] | Literal[parameter.words], {}
    if "auto" in parameter.words:
        type_ = Annotated[type_, BeforeValidator(auto_of_none)]
    return type_, Field(default, description=parameter.doc, **limits)


class DatasetCommandIn(CommandIn):
    """Base of request bodies that name a data set."""

    dataset: str = Field(description="Id of a data set.", examples=["ds_127ecc1c5da53ccc7b4b569022a22285"])


_TYPES = get_type_hints(FitSpec)
_FIT_FIELDS: dict[str, Any] = {
    item.name: _field(FitSpec.parameters()[item.name], _TYPES[item.name], item.default) for item in fields(FitSpec)
}
_FitIn: Any = create_model("_FitIn", __base__=DatasetCommandIn, **_FIT_FIELDS)


class PosteriorIn(_FitIn):  # type: ignore[misc] # dynamic base class
    """Request to fit a posterior: a data set, and the parameters of the engine's `FitSpec`."""

    neighbors: str | None = Field(
        default=None,
        description="Id of a data set (n, k) of neighbors, in place of a search: rows of the data, counted from 0. "
        "-1 where a point has fewer. n_neighbors is then k.",
        examples=["ds_6b6c6ac0c8f3a0a7b3a1c5d2e4f60718"],
    )

    def fit_spec(self, given_neighbors: int | None = None) -> FitSpec:
        """Return the engine's specification of the fit.

        `given_neighbors` is the number of neighbors of each point if the request names a data set of neighbors, and
        None if the fit searches them. Raises `InvalidParameterError` for parameters that do not go together.
        """
        spec = FitSpec(**self.model_dump(exclude={"dataset", "neighbors"}))
        return spec if given_neighbors is None else with_neighbors(spec, {}, given_neighbors)


SourceQuery = Annotated[Source, Query(description="Distribution of the weights.")]
First = Annotated[int, Field(ge=0, le=MAX_COUNTER, description="Index of the first draw.")]


class DrawsIn(CommandIn):
    """Request for draws from a posterior."""

    n_draws: int = Field(ge=1, description="Draws at each scale.", examples=[8])
    seed: Seed = 0
    first: First = 0
    scale: ScaleOrAuto | None = Field(
        default=None,
        description="Factor on the covariance, by default 1; with auto, draws spread as random halves of the data do.",
    )
    scales: list[ScaleOrAuto] | None = Field(
        default=None, min_length=1, max_length=100, description="Several factors, which become an axis of the result."
    )
    source: Source = Field(default="posterior", description="Distribution of the weights to draw from.")
    align: Align = Field(default="procrustes", description="Whether to rotate to the reference embedding.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.scale is not None and self.scales is not None:
            raise ValueError("give scale or scales, not both")
        return self


class DatasetOut(BaseModel):
    """Description of a data set, without its values."""

    id: str = Field(description="Derived from the digest and the tenant, so that equal content has an equal id.")
    sha256: str = Field(description="Digest of shape, dtype, values, names, labels, colors, coordinates and ids.")
    n: int = Field(description="Points (rows).")
    n_features: int = Field(description="Features (columns).")
    dtype: str = Field(description="float64, or float32 if it was uploaded so.")
    nbytes: int = Field(description="Bytes of the values.")
    names: list[str] | None = Field(description="Names of the features.")
    has_labels: bool = Field(description="Whether each point has a label.")
    has_colors: bool = Field(description="Whether each point has a number for its color.")
    has_coordinates: bool = Field(description="Whether each point has its true coordinates.")
    has_ids: bool = Field(description="Whether the ids of the rows are stored.")
    source: dict[str, Any] = Field(description="Origin of the data.")
    columns: dict[str, list[str]] = Field(
        description="Columns of the upload with another role than feature: labels, colors, id, ignore, one_hot."
    )
    notices: list[NoteOut] = Field(description="What the reader of the upload decided, and how to decide otherwise.")
    created: str = Field(description="ISO 8601, UTC.")
    name: str | None = Field(description="Name set by PATCH; not part of the content.")
    tags: list[str] = Field(description="Tags set by PATCH; not part of the content.")
    links: dict[str, str] = Field(description=LINKS)

    @classmethod
    def from_record(cls, dataset: Dataset) -> Self:
        """Return the description of a data set, made from its record."""
        url = address(f"/v1/datasets/{dataset.id}")
        source = dataset.source
        return cls(
            **asdict(dataset),
            n_features=dataset.d,
            columns=source.get("columns", {}),
            notices=source.get("notices", []),
            links={"self": url, "data": f"{url}/data", **({"ids": f"{url}/ids"} if dataset.has_ids else {})},
        )


class TableIn(CommandIn):
    """A table as JSON. This model only documents the body, which the readers of uploads parse."""

    data: list[list[float]] = Field(description="Points, a row each.")
    names: list[str] | None = Field(default=None, description="Names of the features.")
    labels: list[str | float | None] | None = Field(default=None, description="Label of each point; null if missing.")
    colors: list[float] | None = Field(default=None, description="Number of each point for its color.")
    ids: list[str | int | None] | list[list[str | int | None]] | None = Field(
        default=None, description="Id of each point, or a row of several; null if missing."
    )


class ColumnOut(BaseModel):
    """A column of an uploaded table, and how it is used."""

    name: str = Field(description="Its name, or its number from 0.")
    role: str = Field(description="feature, labels, colors, id, ignore or one_hot; empty if the column needs a role.")


class DatasetPreviewOut(BaseModel):
    """What an upload of this table would store, with its first points; or the problem that would refuse it."""

    id: str | None = Field(description="Id of the data set; null if it is refused.")
    n: int | None = Field(description="Points (rows).")
    n_features: int | None = Field(description="Features, after one-hot.")
    format: str | None = Field(description="csv, npy, npz, json, arrow, feather or parquet.")
    dialect: dict[str, str] = Field(
        description="Of a table of text: what differs from commas, decimal points and UTF-8."
    )
    names: list[str] | None = Field(description="Names of the features.")
    columns: list[ColumnOut] = Field(
        description="Names and roles of the first hundred columns of the file, and of later ones that are no features."
    )
    notices: list[NoteOut] = Field(description="What the reader decided, and how to decide otherwise.")
    rows: list[list[float]] = Field(description="Features of the first points, as they are fitted.")
    labels: list[str | float] | None = Field(description="Labels of these points.")
    colors: list[float] | None = Field(description="Colors of these points.")
    ids: list[str | int] | list[list[str | int]] | None = Field(description="Ids of these points, as in the file.")
    problem: ProblemOut | None = Field(description="Why an upload would be refused; null if it would not.")

    @classmethod
    def from_table(cls, table: Table, id_: str, count: int) -> Self:
        """Return the preview of a table with its first points: at most `count`, of at most `PREVIEW_BYTES` bytes."""
        arrays = [table.values, *table.extras.values()]
        row_bytes = PREVIEW_ROW_BYTES + sum(array[:1].nbytes for array in arrays)
        count = min(count, max(1, PREVIEW_BYTES // row_bytes))
        rows = np.asarray(table.values[:count], np.float64).tolist()
        extras = {"labels": table.labels, "colors": table.colors, "ids": table.ids}
        return cls(
            id=id_,
            n=table.values.shape[0],
            n_features=table.values.shape[1],
            format=table.source["format"],
            dialect=table.source.get("dialect", {}),
            names=table.names,
            columns=table.source.get("layout", []),
            notices=table.source.get("notices", []),
            rows=rows,
            problem=None,
            **{name: None if array is None else array[:count].tolist() for name, array in extras.items()},
        )

    @classmethod
    def of_problem(cls, problem: Problem) -> Self:
        """Return the preview of a table that an upload would refuse for this problem."""
        empty = dict.fromkeys(cls.model_fields) | {"dialect": {}, "notices": [], "rows": []}
        known = {"columns": problem.details.get("columns", []), "problem": problem.to_dict()}
        return cls.model_validate(empty | known)


class PosteriorOut(BaseModel):
    """Description of a fitted posterior, without its arrays."""

    id: str = Field(description="Digest of data set, specification and engine version.")
    dataset: str = Field(description="Id of its data set.")
    n: int = Field(description="Points.")
    n_features: int = Field(description="Features.")
    spec: dict[str, Any] = Field(description="Every parameter with its value; `neighbors` if they were given.")
    diagnostics: dict[str, Any] = Field(description="`figures` of the fit, and `notes` with warnings and findings.")
    eigenvalues: list[float] = Field(description="Bottom of the spectrum, one more than the embedding uses.")
    seconds: float = Field(description="Duration of the fit.")
    stages: dict[str, float] = Field(
        description="Seconds of its stages: neighbors, weights, embedding, posterior, diagnostics."
    )
    arrays: dict[str, dict[str, Any]] = Field(description="Shape and dtype of each array.")
    nbytes: int = Field(description="Bytes of the arrays.")
    provenance: dict[str, str] = Field(description="Versions and machine, for a replay.")
    job: str = Field(description="The job that fitted it.")
    created: str = Field(description="ISO 8601, UTC.")
    name: str | None = Field(description="Name set by PATCH.")
    tags: list[str] = Field(description="Tags set by PATCH.")
    links: dict[str, str] = Field(description=LINKS)

    @classmethod
    def from_record(cls, record: PosteriorRecord) -> Self:
        """Return the description of a posterior, made from its record."""
        url = address(f"/v1/posteriors/{record.id}")
        names = ("arrays", "export", "draws", "summary", "calibration", "transform", "reconstructions")
        below = {name: f"{url}/{name}" for name in names}
        links = {"self": url, **below, "dataset": address(f"/v1/datasets/{record.dataset}")}
        for neighbors in record.datasets[1:]:
            links["neighbors"] = address(f"/v1/datasets/{neighbors}")
        return cls(**asdict(record), n_features=record.d, links=links)


class ProgressOut(BaseModel):
    """How much of its work a job has done."""

    done: int
    total: int
    stage: str = Field(description="Current stage; except for draws, done and total count within it.")
    eta: float | None = Field(
        description="Seconds until done reaches total at the rate so far: the end of draws, or of the stage; or null."
    )

    @classmethod
    def from_job(cls, job: Job) -> Self:
        """Return the progress of a job, made from its record."""
        return cls(done=job.done, total=job.total, stage=job.stage, eta=job.eta)


class JobOut(BaseModel):
    """A job, which computes a fit, draws or an analysis."""

    id: str
    kind: Kind
    status: Status
    progress: ProgressOut
    created: str = Field(description="ISO 8601, UTC, like the other times.")
    started: str | None
    finished: str | None
    priority: Priority = Field(description="An interactive job does not wait for batches.")
    posterior: str | None = Field(description="Id of the posterior it fits or uses; null if it is about a data set.")
    dataset: str | None = Field(
        description="Id of the data set in the request, to fit, embed, transform or audit; else null. Inline "
        "points have the id that they would have as a data set."
    )
    request: dict[str, Any] = Field(description="The request.")
    error: ProblemOut | None = Field(description="Problem of a failed job.")
    links: dict[str, str] = Field(description="URLs of related resources; `result` once there is one.")

    @classmethod
    def from_job(cls, job: Job) -> Self:
        """Return the description of a job, made from its record."""
        url = address(f"/v1/jobs/{job.id}")
        links = {"self": url}
        if job.posterior is not None:
            links["posterior"] = address(f"/v1/posteriors/{job.posterior}")
        if job.dataset not in {None, job.inline}:
            links["dataset"] = address(f"/v1/datasets/{job.dataset}")
        if job.kind == "embedding":
            links["embedding"] = address(f"/v1/embeddings/{EmbeddingSpec.from_dict(job.spec).recipe.id}")
        if job.kind in {"placement", "audit"} and job.spec["embedding"]:
            links["embedding"] = address(f"/v1/embeddings/{job.spec['embedding']}")
        if job.status == "succeeded":
            links["result"] = f"{url}/result"
        internal = {"n", "p", "grid", "shard_seconds", "engine", "recipe"}
        same = ("id", "kind", "status", "created", "started", "finished", "priority", "posterior", "dataset")
        return cls(
            **{name: getattr(job, name) for name in same},
            progress=ProgressOut.from_job(job),
            request={name: value for name, value in job.spec.items() if name not in internal},
            error=None if job.error is None else ProblemOut(**job.error.to_dict()),
            links=links,
        )


class Page(BaseModel):
    """One page of a list of resources."""

    next: str | None = Field(description="Value of ?cursor= for the next page; null on the last.")
    unreadable: list[str] = Field(
        default=[], description="Ids of records that cannot be written as JSON and are left out; each can be deleted."
    )


class DatasetPage(Page):
    """A page of the list of data sets, the newest first."""

    items: list[DatasetOut]


class PosteriorPage(Page):
    """A page of the list of posteriors, the newest first."""

    items: list[PosteriorOut]


class JobPage(Page):
    """A page of the list of jobs, the newest first."""

    items: list[JobOut]


class QuotaOut(BaseModel):
    """How much of one quota a tenant uses."""

    used: int
    allowed: int | None = Field(description="The quota; null for no limit.")

    @classmethod
    def from_use(cls, used: int, allowed: int) -> Self:
        """Return how much of a quota is used; `allowed` is 0 if there is no limit."""
        return cls(used=used, allowed=allowed or None)


class QuotasOut(BaseModel):
    """How much of each quota a tenant uses."""

    bytes: QuotaOut = Field(description="Bytes of files, and of uploads that arrive now; DELETE frees them.")
    jobs: QuotaOut = Field(
        description="Open jobs, until they end. Without a quota a tenant may have three times as many as are free."
    )
    records: QuotaOut = Field(description="Bytes of the records of ended jobs, of which the oldest are removed.")
    posteriors: QuotaOut = Field(description="Posteriors; DELETE frees them.")


class UsageOut(BaseModel):
    """What a tenant has stored and queued, and its quotas."""

    tenant: str
    quotas: QuotasOut
    datasets: int = Field(description="Number of data sets.")
    posterior_bytes: int = Field(description="Bytes of the arrays of its posteriors.")


class LiveOut(BaseModel):
    """Answer of a process that is alive."""

    status: Literal["ok"] = "ok"


class CheckOut(BaseModel):
    """Outcome of one check by /readyz, such as of a Redis server."""

    name: str = Field(examples=["queue server"])
    state: Literal["ok", "warning", "problem"]
    detail: str = Field(description="Finding.")


class ReadyOut(BaseModel):
    """Answer of a service that can work; a request without a key gets only the status, if keys are needed."""

    status: Literal["ok", "degraded"] = Field(default="ok", description="degraded: a check has a warning.")
    workers: int | None = Field(default=None, description="Workers with a recent heartbeat; with a key only.")
    queue_length: int | None = Field(default=None, description="Waiting tasks and single draws; with a key only.")
    checks: list[CheckOut] | None = Field(default=None, description="All checks; with a key only.")


class InfoOut(BaseModel):
    """Versions and limits of the service."""

    name: str
    versions: dict[str, str] = Field(description="Versions of the engine and its libraries.")
    limits: dict[str, int | float] = Field(description="Settings that limit requests; a quota of 0 is none.")
    manifolds: list[str] = Field(description="Names for POST /v1/datasets/synthetic.")
    posterior_defaults: dict[str, Any] = Field(description="Defaults of POST /v1/posteriors.")
    numbers: str = Field(
        description="Version of the engine's numbers, part of all ids; with `+` and a fingerprint where the workers "
        "compute other bits than the pinned ones."
    )


MAX_NAME, MAX_TAGS, MAX_TAG = 200, 20, 50

Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=_LINE_PATTERN)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG, pattern=_LINE_PATTERN)]
NameFilter = Annotated[str | None, Query(description="Only records with this name.")]
TagFilter = Annotated[
    list[str], Query(default_factory=list, description="Only records with this tag; if repeated, with all these tags.")
]


class NamingIn(BaseModel):
    """Name and tags to set, as a JSON merge patch (RFC 7396): null removes a member, and absent members stay."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name | None = Field(default=None, description=f"At most {MAX_NAME} characters on one line.")
    tags: list[Tag] | None = Field(
        default=None,
        max_length=MAX_TAGS,
        description=f"At most {MAX_TAGS}, of at most {MAX_TAG} characters each.",
        json_schema_extra={"uniqueItems": True},
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.tags is not None and len(set(self.tags)) < len(self.tags):
            raise ValueError("tags must differ: give each tag once")
        return self

    def changes(self) -> dict[str, Any]:
        """Return the members that the request has, by name; the value None removes a member."""
        return self.model_dump(include=self.model_fields_set)
