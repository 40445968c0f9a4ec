"""JSON of requests for analyses."""

from typing import Annotated, Any, Self

from pydantic import Field, WithJsonSchema, model_validator

from glle_engine.audit.chance import NEIGHBORS
from glle_engine.base.spec import Metric, Source, Standardize
from glle_engine.posterior.selection import DEFAULT_RANGE
from glle_engine.reliability.calibration import DRAWS, HALF_SAMPLES
from service.schemas.embeddings import MethodName, Parameters
from service.schemas.resources import CommandIn, DatasetCommandIn, First, Scale, Seed

Rows = Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "number"}}})]


class SampleIn(CommandIn):
    """Draws that an analysis takes."""

    seed: Seed = 0
    first: First = 0
    scale: Scale = 1.0
    source: Source = Field(default="posterior", description="Law of the weights to draw from.")


class PointsIn(CommandIn):
    """New points to embed, as a data set or inline."""

    dataset: str | None = Field(default=None, description="Id of a data set: the new points.")
    data: Rows | None = Field(
        default=None, description="A few new points, a row each, stored with the job only. The body may have 64 KiB."
    )

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.dataset is None) == (self.data is None):
            raise ValueError("give either dataset or data")
        return self


class TransformIn(PointsIn, SampleIn):
    """New points to embed, as a data set or inline, and the draws to embed them in."""

    draws: int = Field(
        default=0, ge=0, description="Draws for the mean and covariance of each new point: none, or at least two."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.draws == 1:
            raise ValueError("one draw has no covariance: give draws=0, or at least 2")
        unused = [name for name in SampleIn.model_fields if getattr(self, name) != SampleIn.model_fields[name].default]
        if self.draws == 0 and unused:
            raise ValueError(f"{', '.join(unused)} has a meaning with draws only: give draws, or leave it out")
        return self


class ReconstructionsIn(SampleIn):
    """Data sets to generate from drawn weights."""

    count: int = Field(ge=1, description="Number of data sets, one per draw.", examples=[4])


class CalibrationIn(CommandIn):
    """Effort of the calibration of the scale."""

    half_samples: int = Field(default=HALF_SAMPLES, ge=4, le=1000, description="Random halves of the data.")
    draws: int = Field(default=DRAWS, ge=4, le=1000, description="Draws at each trial scale.")
    seed: Seed = 0


class AdviceIn(DatasetCommandIn):
    """Range of parameters to score on a data set."""

    n_neighbors: list[Annotated[int, Field(ge=2)]] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description=f"Values of k; default {', '.join(map(str, DEFAULT_RANGE))}.",
    )
    n_components: int = Field(default=2, ge=1, description="p of the scored embeddings.")
    max_components: int = Field(default=10, ge=1, description="Number of dimensions to examine in the spectrum.")
    reg: float = Field(default=1e-3, gt=0, description="The ridge of LLE, as in a posterior.")
    standardize: Standardize = Field(default="none", description="Of the features, as in a posterior.")
    metric: Metric = Field(default="euclidean", description="Of the neighbors, as in a posterior.")


class AuditIn(CommandIn):
    """Map to audit: coordinates beside a data set, an embedding, a posterior, or a method."""

    dataset: str | None = Field(default=None, description="Id of a data set: the data of coordinates, or of a method.")
    coordinates: str | Rows | None = Field(
        default=None,
        description="Coordinates (n, p) from anywhere, in the order of the data: id of a data set, or rows, stored "
        "with the job only. The body may have 64 KiB.",
    )
    embedding: str | None = Field(default=None, description="Id of an embedding.")
    posterior: str | None = Field(default=None, description="Id of a posterior.")
    method: MethodName | None = Field(default=None, description="Name of an embedding method: GET /v1/methods.")
    parameters: Parameters
    labels: str | None = Field(
        default=None,
        description="Id of a data set with the group of each point: its labels, else its only column. By default the "
        "labels of the data, if they have some.",
    )
    n_neighbors: int = Field(default=NEIGHBORS, ge=2, description="Neighbors that are compared.")
    seed: Seed = 0

    @model_validator(mode="after")
    def _one_map(self) -> Self:
        maps = [name for name in ("coordinates", "embedding", "posterior", "method") if getattr(self, name) is not None]
        if len(maps) != 1:
            raise ValueError("give one of coordinates, embedding, posterior and method")
        if (self.dataset is None) == (maps[0] in {"coordinates", "method"}):
            raise ValueError("give dataset with coordinates or a method, and leave it out otherwise")
        if self.parameters and self.method is None:
            raise ValueError("parameters are those of a method: give one, or leave them out")
        return self
