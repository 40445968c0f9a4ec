"""Request models of analyses, embeddings and comparisons; response models of embeddings and scores."""

from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema, model_validator

from glle_engine.audit.options import AUDIT_NEIGHBORS
from glle_engine.base.spec import Metric, Source, Standardize
from glle_engine.methods.registry import canonical
from glle_engine.metrics.registry import Score
from glle_engine.reliability.calibration import CALIBRATION_DRAWS, HALF_SAMPLES
from service.schemas.addresses import address
from service.schemas.derived import fields_of
from service.schemas.problems import NoteOut
from service.schemas.resources import (
    LINKS,
    MAX_COUNTER,
    CommandIn,
    DatasetCommandIn,
    First,
    Page,
    Scale,
    Seed,
    auto_of_none,
)
from worker.analyses.embedding_records import EmbeddingRecord
from worker.records.cache_entry import Entry

_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$"  # a label names npz members and table columns

MAX_METHODS = 32

Parameters = Annotated[
    dict[str, Any],
    Field(
        default_factory=dict,
        description="Parameters by name; missing ones have their defaults. GET /v1/methods has the schemas.",
        examples=[{"n_neighbors": 10}],
    ),
]


MethodName = Annotated[str, AfterValidator(canonical)]
AutoCount = Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], BeforeValidator(auto_of_none)]


class MethodIn(CommandIn):
    """An embedding method and its parameters."""

    method: MethodName = Field(
        description="Name of an embedding method: GET /v1/methods. Spellings such as tsne mean the same.",
        examples=["pca"],
    )
    parameters: Parameters


_SCORED = "Neighbors that the scores use; auto: 10, or fewer for few points."


class ScoredIn(DatasetCommandIn):
    """A data set to embed, and the scores to compute for its embeddings."""

    labels: str | None = Field(
        default=None,
        description="Id of a data set with the class of each point: its labels, else its only column. For scores that "
        "need labels, and for supervised methods; other methods do not use them.",
    )
    truth: str | None = Field(
        default=None,
        description="Id of a data set with the true coordinates: its own (a synthetic data set may name itself), else "
        "its values. For scores that need the truth.",
    )
    scores: list[str] | None = Field(
        default=None,
        max_length=100,
        description="Names of GET /v1/scores. By default those with `by_default` that labels and truth allow; "
        "[] for none.",
    )
    score_neighbors: AutoCount = Field(default="auto", description=_SCORED)


class EmbeddingIn(ScoredIn, MethodIn):
    """Request for an embedding of a data set by one method."""


class ComparedIn(MethodIn):
    """A method to compare, with the name of its row in the result."""

    label: str | None = Field(
        default=None,
        pattern=_LABEL,
        description="Name of its row; by default the method, with its number of neighbors if several rows have it.",
    )


class ComparisonIn(ScoredIn):
    """Request to compare the embeddings (maps) of one data set by several methods."""

    methods: list[ComparedIn] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_METHODS,
        description="One row each, in this order. By default PCA, t-SNE and UMAP with several numbers of neighbors, "
        "Isomap, GLLE and PaCMAP, as far as they are installed and possible.",
    )
    audit: bool = Field(
        default=True,
        description="Whether to audit each map on the same halves of the data, and to say which map to show. False for "
        "the scores alone.",
    )
    blocks: str | None = Field(default=None, description="Block of each point, such as its subject, as in an audit.")
    standardize: Standardize | None = Field(
        default=None, description="How to standardize the features, as in an audit."
    )
    metric: Metric | None = Field(default=None, description="Metric of the distances by which all maps are judged.")
    seed: int = Field(default=0, ge=0, le=MAX_COUNTER, description="Seed of the random halves of the data.")
    align: Literal["first", "truth"] | None = Field(
        default=None,
        description="Also return the embeddings, rotated and scaled to the first that succeeds, or to the truth.",
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        labels = [row.label for row in self.methods or () if row.label is not None]
        if len(set(labels)) != len(labels):
            raise ValueError("labels must differ: give each row its own label, or none")
        if self.align == "truth" and self.truth is None:
            raise ValueError("align='truth' needs truth: give the id of a data set with the true coordinates")
        if not self.audit and self.methods is None:
            raise ValueError("audit=false needs methods: list the methods whose embeddings are to be scored")
        return self


class RecipeOut(BaseModel):
    """What determines an embedding: the data set, the method, its parameters, and labels if the method uses them."""

    id: str = Field(description="Digest of data set, method, all parameters, labels and engine version.")
    dataset: str = Field(description="Id of its data set.")
    method: str
    parameters: dict[str, Any] = Field(description="Every parameter with its value.")
    labels: str | None = Field(description="Data set with the classes for a supervised method.")


class EmbeddingOut(RecipeOut):
    """Description of an embedding, without its coordinates."""

    engine: str = Field(description="Version of the engine.")
    n: int = Field(description="Points.")
    eigenvalues: list[float] | None = Field(description="Eigenvalues of spectral methods, in the order of the columns.")
    figures: dict[str, Any] = Field(description="Numbers of the method, such as log_likelihood and iterations.")
    notes: list[NoteOut] = Field(description="Warnings and findings, with the remedy.")
    seconds: dict[str, float] = Field(description="Duration of each stage.")
    map: dict[str, list[int]] | None = Field(
        default=None,
        description="Shapes of the arrays by which it places new points, by name; empty if data and coordinates "
        "suffice; null if it cannot place new points.",
    )
    links: dict[str, str] = Field(description=LINKS)

    @classmethod
    def from_entry(cls, entry: Entry) -> Self:
        """Return the description of a stored embedding; `entry` has the metadata and arrays of the embedding."""
        links = embedding_links(entry.meta["id"], entry.meta["dataset"])
        if entry.meta.get("map") is not None:
            links["transform"] = f"{links['self']}/transform"
        return cls(**entry.meta, links=links)


class ListedEmbeddingOut(RecipeOut):
    """Item of the list of embeddings: an embedding that was requested, whether or not it has been computed."""

    name: str | None = Field(description="Set by PATCH.")
    tags: list[str] = Field(description="Set by PATCH.")
    created: str = Field(description="Time of the first request.")
    links: dict[str, str] = Field(description=LINKS)

    @classmethod
    def from_record(cls, record: EmbeddingRecord) -> Self:
        """Return the list item of an embedding, made from its record."""
        naming = {name: getattr(record, name) for name in ("id", "name", "tags", "created")}
        return cls(**asdict(record.recipe), **naming, links=embedding_links(record.id, record.recipe.dataset))


class EmbeddingPage(Page):
    """A page of the list of embeddings, the newest first."""

    items: list[ListedEmbeddingOut]


@fields_of(Score, *("name", "title", "about", "needs", "better", "most_points", "growth", "reproducible", "by_default"))
class ScoreOut(BaseModel):
    """A score, which measures the quality of embeddings."""


class ScoreList(BaseModel):
    """All scores that can be requested."""

    items: list[ScoreOut]


def embedding_links(id_: str, dataset: str) -> dict[str, str]:
    """Return the URLs of an embedding, its coordinates, its arrays and its data set, by the name of the link."""
    url = address(f"/v1/embeddings/{id_}")
    below = {name: f"{url}/{name}" for name in ("coordinates", "arrays")}
    return {"self": url, **below, "dataset": address(f"/v1/datasets/{dataset}")}


Rows = Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "number"}}})]


class SampleIn(CommandIn):
    """Which draws of a posterior an analysis uses."""

    seed: Seed = 0
    first: First = 0
    scale: Scale = 1.0
    source: Source = Field(default="posterior", description="Distribution of the weights to draw from.")


class PointsIn(CommandIn):
    """New points to embed: the id of a data set, or a few rows inline."""

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
    """New points to embed in a posterior's reference embedding and, unless `n_draws` is 0, in draws."""

    n_draws: int = Field(
        default=0, ge=0, description="Draws for the mean and covariance of each new point: none, or at least two."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n_draws == 1:
            raise ValueError("one draw has no covariance: give n_draws=0, or at least 2")
        unused = [name for name in SampleIn.model_fields if getattr(self, name) != SampleIn.model_fields[name].default]
        if self.n_draws == 0 and unused:
            names = ", ".join(unused)
            raise ValueError(f"only draws have {names}: give n_draws as well, or leave out {names}")
        return self


class ReconstructionsIn(SampleIn):
    """Request for data sets that are generated from drawn reconstruction weights, one data set per draw."""

    n_draws: int = Field(ge=1, description="Number of data sets, one per draw.", examples=[4])


class CalibrationIn(CommandIn):
    """Request to calibrate the scale of a posterior's draws: numbers of random halves of the data and of draws."""

    n_resamples: int = Field(default=HALF_SAMPLES, ge=4, le=1000, description="Random halves of the data.")
    n_draws: int = Field(default=CALIBRATION_DRAWS, ge=4, le=1000, description="Draws at each trial scale.")
    seed: Seed = 0


class AuditIn(CommandIn):
    """Map to audit: an embedding, a posterior, or a data set with a method, with coordinates, or with both."""

    dataset: str | None = Field(default=None, description="Id of a data set: the data of coordinates, or of a method.")
    coordinates: str | Rows | None = Field(
        default=None,
        description="Coordinates (n, p) from anywhere, in the order of the data: id of a data set, or rows, stored "
        "with the job only. The body may have 64 KiB.",
    )
    embedding: str | None = Field(default=None, description="Id of an embedding.")
    posterior: str | None = Field(default=None, description="Id of a posterior.")
    method: MethodName | None = Field(
        default=None,
        description="Name of an embedding method: GET /v1/methods. With coordinates: the method that made them.",
    )
    parameters: Parameters
    standardize: Standardize | None = Field(
        default=None,
        description="How to standardize the features of a data set, also as a parameter of a method that has it. An "
        "embedding and a posterior have their own.",
    )
    metric: Metric | None = Field(
        default=None, description="Metric of the distances in a data set; where to give it is as for standardize."
    )
    labels: str | None = Field(
        default=None,
        description="Id of a data set with the group of each point: its labels, else its only column. By default the "
        "labels of the data, if they have some.",
    )
    blocks: str | None = Field(
        default=None,
        description="Block of each point, such as its subject, series or replicate: the name of a column of the data "
        "that is no feature (labels, colors, id), or the id of a data set, as for labels. Halves of the data have "
        "whole blocks.",
    )
    score_neighbors: int = Field(default=AUDIT_NEIGHBORS, ge=2, description="Neighbors that are compared.")
    seed: Seed = 0

    @model_validator(mode="after")
    def _one_map(self) -> Self:
        maps = [name for name in ("coordinates", "embedding", "posterior", "method") if getattr(self, name) is not None]
        if len(maps) != 1 and maps != ["coordinates", "method"]:
            raise ValueError(
                "give one of coordinates, embedding, posterior or method; only coordinates and method go together"
            )
        if (self.dataset is None) == (maps[0] in {"coordinates", "method"}):
            raise ValueError(
                "give dataset with coordinates or a method; leave dataset out with an embedding or a posterior"
            )
        if self.parameters and self.method is None:
            raise ValueError("parameters belong to a method: give a method, or leave parameters out")
        return self
