"""The JSON of the API: what is asked for, and what is told."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from glle_engine import FitSpec, manifolds
from glle_engine.base.spec import (
    Adaptation,
    Align,
    Covariance,
    Disconnected,
    Mean,
    Method,
    Noise,
    Search,
    Source,
    Variance,
    Variant,
)
from service.schemas.base import CommandIn
from service.schemas.problems import ProblemOut
from worker.analyses.embedding import EmbeddingSpec
from worker.base.clock import iso
from worker.jobs.store import Job, Kind, Status
from worker.records.priority import Priority
from worker.storage.datasets import Dataset
from worker.storage.posteriors import PosteriorRecord

MAX_COUNTER = 2**64 - 1  # seeds and indices are keys of a counter-based generator

Scale = Annotated[float, Field(ge=0, description="Factor on the covariance; 0 is LLE itself.")]
ScaleOrAuto = Scale | Literal["auto"]
Seed = Annotated[int, Field(ge=0, le=MAX_COUNTER, description="Stream of draws.")]
# Cells are read as those of an uploaded JSON body: what is wrong is told with its row and column.


class SyntheticIn(CommandIn):
    """A sheet to sample."""

    name: str = Field(description=f"One of {', '.join(manifolds.NAMES)}.", examples=["swiss_roll"])
    n: int = Field(default=1000, ge=1, description="Number of points.")
    noise: float = Field(default=0.0, ge=0, description="Standard deviation of the noise, relative to the sheet.")
    seed: int = Field(default=0, ge=0, le=MAX_COUNTER, description="The same seed gives the same points.")


class PosteriorIn(CommandIn):
    """A posterior to fit: a data set and the parameters of the engine's `FitSpec`."""

    dataset: str = Field(description="Id of a data set.", examples=["ds_127ecc1c5da53ccc7b4b569022a22285"])
    method: Method = Field(default="em", description="GLLE Algorithm 1 (em) or 2 (direct).")
    variant: Variant = Field(
        default="constrained", description="Weights that sum to one, or the equations as published."
    )
    n_neighbors: int = Field(default=10, ge=2, description="k, the neighbours of a point.")
    n_components: int = Field(default=2, ge=1, description="p, the dimension of the embedding.")
    reg: float = Field(default=1e-3, gt=0, description="Ratio of noise to prior variance (the ridge of LLE).")
    variance: Variance = Field(
        default="auto",
        description="Noise variance of the constrained variant: of flat Dirichlet weights, or of the residuals (ml). "
        "Auto is dirichlet if the residuals lie in fewer than n_neighbors - 1 directions (the figure "
        "residual_dimension) or the noise is tangent, else ml.",
    )
    mean: Mean = Field(default="lle", description="Mean of the direct posterior.")
    covariance: Covariance = Field(
        default="spherical",
        description="M-step of the published em: one variance a point (Eq. 29), a full covariance as printed (the zero "
        "of Eq. 26), or the true maximum of Eq. 23 (full-corrected).",
    )
    max_iter: int = Field(default=50, ge=1, description="Most iterations of the published em; no effect outside it.")
    tol: float = Field(
        default=1e-6, ge=0, description="Relative change that ends them; 0 runs exactly max_iter iterations."
    )
    disconnected: Disconnected = Field(
        default="refuse", description="A graph that is not whole: an error, or bridged by its shortest edges."
    )
    noise: Noise = Field(
        default="isotropic", description="Reconstruction noise of the constrained variant: alike, or along the sheet."
    )
    neighborhoods: Adaptation = Field(
        default="fixed",
        description="All n_neighbors candidates of a point, or those near its tangent plane (constrained, isotropic).",
    )
    search: Search = Field(
        default="exact",
        description="How neighbours are found; approximate is for many points of many features, needs faiss on the "
        "workers, and tells the share it found.",
    )

    def fit_spec(self) -> FitSpec:
        """Return the engine's specification, which checks the parameters against each other."""
        return FitSpec(**self.model_dump(exclude={"dataset"}))


First = Annotated[int, Field(ge=0, le=MAX_COUNTER, description="Index of the first draw.")]


class DrawsIn(CommandIn):
    """Draws to make."""

    count: int = Field(ge=1, description="Draws at each scale.", examples=[8])
    seed: Seed = 0
    first: First = 0
    scale: ScaleOrAuto | None = Field(
        default=None, description="Factor on the covariance; auto: the one that half-sampling suggests; 1 unless told."
    )
    scales: list[ScaleOrAuto] | None = Field(
        default=None, min_length=1, max_length=100, description="Several factors: an axis of the result."
    )
    source: Source = Field(default="posterior", description="Which law of the weights to draw from.")
    align: Align = Field(default="procrustes", description="Rotate to the reference embedding, or not.")
    priority: Priority = Field(
        default="batch", description="interactive: before every batch, for draws that take no longer than a shard."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.scale is not None and self.scales is not None:
            raise ValueError("give scale or scales, not both")
        return self


class DatasetOut(BaseModel):
    """A data set."""

    id: str = Field(description="Made of the digest, and of the tenant: the same content has the same id.")
    sha256: str = Field(description="Digest of shape, dtype, values, names, labels and coordinates.")
    n: int = Field(description="Points (rows).")
    d: int = Field(description="Features (columns).")
    dtype: str = Field(description="float64, or float32 if it was uploaded so.")
    nbytes: int = Field(description="Bytes of the values.")
    names: list[str] | None = Field(description="Names of the features.")
    has_labels: bool = Field(description="Whether a label of each point is kept with it.")
    has_color: bool = Field(description="Whether a number of each point, to colour it by, is kept with it.")
    has_coordinates: bool = Field(description="Whether the true coordinates are known.")
    source: dict[str, Any] = Field(description="Where it came from.")
    created: str = Field(description="ISO 8601, UTC.")
    name: str | None = Field(description="What PATCH called it; no part of its content.")
    tags: list[str] = Field(description="Likewise.")
    links: dict[str, str] = Field(description="Where to go from here.")

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Return what is told of a record."""
        here = f"/v1/datasets/{dataset.id}"
        return cls(**dataset.to_dict(), links={"self": here, "data": f"{here}/data"})


class PosteriorOut(BaseModel):
    """A fitted posterior."""

    id: str = Field(description="Digest of data set, specification and engine version.")
    dataset: str = Field(description="Id of its data set.")
    n: int = Field(description="Points.")
    d: int = Field(description="Features.")
    spec: dict[str, Any] = Field(description="Every parameter with its value.")
    diagnostics: dict[str, Any] = Field(description="`figures` of the fit, and `notes` on what is remarkable.")
    eigenvalues: list[float] = Field(description="Bottom of the spectrum, one beyond the embedding's.")
    seconds: float = Field(description="Time of the fit.")
    stages: dict[str, float] = Field(
        description="Seconds of its stages: neighbors, weights, embedding, posterior, diagnostics."
    )
    arrays: dict[str, dict[str, Any]] = Field(description="Shape and dtype of each array.")
    nbytes: int = Field(description="Bytes of the arrays.")
    provenance: dict[str, str] = Field(description="Versions and machine: what a replay needs.")
    job: str = Field(description="The job that fitted it.")
    created: str = Field(description="ISO 8601, UTC.")
    name: str | None = Field(description="What PATCH called it.")
    tags: list[str] = Field(description="Likewise.")
    links: dict[str, str] = Field(description="Where to go from here.")

    @classmethod
    def of(cls, record: PosteriorRecord) -> Self:
        """Return what is told of a record."""
        here = f"/v1/posteriors/{record.id}"
        links = {
            "self": here,
            "arrays": f"{here}/arrays",
            "draws": f"{here}/draws",
            "summary": f"{here}/summary",
            "calibration": f"{here}/calibration",
            "transform": f"{here}/transform",
            "reconstructions": f"{here}/reconstructions",
            "dataset": f"/v1/datasets/{record.dataset}",
        }
        return cls(**record.to_dict(), links=links)


class ProgressOut(BaseModel):
    """How far a job is."""

    done: int
    total: int
    stage: str = Field(description="What is being done; but for draws, done and total count within it.")
    eta: float | None = Field(
        description="Seconds until done is total, at the rate so far: the end of draws, else of the stage; or null."
    )

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return what is told of a record."""
        return cls(done=job.done, total=job.total, stage=job.stage, eta=job.eta)


class JobOut(BaseModel):
    """A job: a fit, draws, or an analysis."""

    id: str
    kind: Kind
    status: Status
    progress: ProgressOut
    created: str = Field(description="ISO 8601, UTC, as the times below.")
    started: str | None
    finished: str | None
    deadline: str | None = Field(description="When it fails unless it has ended.")
    priority: Priority = Field(description="interactive: someone waits, so it goes before every batch.")
    posterior: str | None = Field(description="Id of the posterior it fits or uses; null where it is about a data set.")
    dataset: str | None = Field(
        description="Id of the data set that was named: to fit, to embed, to transform, to advise on; else null. Of "
        "points that came inline the id that they would have as a data set."
    )
    request: dict[str, Any] = Field(description="What was asked for.")
    error: ProblemOut | None = Field(description="The problem a failed job ended with.")
    links: dict[str, str] = Field(description="Where to go from here; `result` once there is one.")

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return what is told of a record."""
        here = f"/v1/jobs/{job.id}"
        links = {"self": here, "events": f"{here}/events"}
        if job.posterior is not None:
            links["posterior"] = f"/v1/posteriors/{job.posterior}"
        if job.dataset is not None and not job.is_inline:
            links["dataset"] = f"/v1/datasets/{job.dataset}"
        if job.kind == "embedding":
            links["embedding"] = f"/v1/embeddings/{EmbeddingSpec.from_dict(job.spec).recipe.id}"
        if job.status == "succeeded":
            links["result"] = f"{here}/result"
        internal = {"n", "p", "grid", "shard_seconds", "engine"}
        return cls(
            id=job.id,
            kind=job.kind,
            status=job.status,
            progress=ProgressOut.of(job),
            created=job.created,
            started=job.started,
            finished=job.finished,
            deadline=None if job.deadline is None else iso(job.deadline),
            priority=job.priority,
            posterior=job.posterior,
            dataset=job.dataset,
            request={name: value for name, value in job.spec.items() if name not in internal},
            error=None if job.error is None else ProblemOut(**job.error.to_dict()),
            links=links,
        )


class Page(BaseModel):
    """One page of a list."""

    next: str | None = Field(description="Give this as ?cursor= for the next page; null on the last.")


class DatasetPage(Page):
    """Data sets, the newest first."""

    items: list[DatasetOut]


class PosteriorPage(Page):
    """Posteriors, the newest first."""

    items: list[PosteriorOut]


class JobPage(Page):
    """Jobs, the newest first."""

    items: list[JobOut]


class LiveOut(BaseModel):
    """The process runs."""

    status: Literal["ok"] = "ok"


class CheckOut(BaseModel):
    """One of the things that must be well."""

    name: str = Field(examples=["queue server"])
    state: Literal["ok", "warning", "problem"]
    detail: str = Field(description="What was found.")


class ReadyOut(BaseModel):
    """The service can do its work."""

    status: Literal["ok", "degraded"] = Field(default="ok", description="degraded: a check has a warning.")
    workers: int | None = Field(default=None, description="Workers that gave a sign of life lately; with a key.")
    queue_length: int | None = Field(default=None, description="Tasks that wait; with a key.")
    checks: list[CheckOut] | None = Field(default=None, description="What was looked at; with a key.")


class NumericsOut(BaseModel):
    """A numerics kind of live workers: all its results have the same bits."""

    numbers: str = Field(description="Version of the numbers; for another kind than the pinned one, `+` and a digest.")
    pinned: bool = Field(description="Whether reference results have the pinned bits of this version.")
    workers: int = Field(description="Workers that gave a sign of life lately.")


class InfoOut(BaseModel):
    """What this service is and allows."""

    name: str
    versions: dict[str, str] = Field(description="Of the engine and what it stands on.")
    limits: dict[str, int | float] = Field(description="The settings that a request can run into; quota 0: none.")
    manifolds: list[str] = Field(description="Names for POST /v1/datasets/synthetic.")
    posterior_defaults: dict[str, Any] = Field(description="The parameters of POST /v1/posteriors.")
    numerics: list[NumericsOut] | None = Field(
        description="The numerics kinds of the live workers; null where the queue's Redis does not answer."
    )
