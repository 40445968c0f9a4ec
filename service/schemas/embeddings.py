"""JSON of embeddings, comparisons and scores."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from glle_engine.base.diagnostics import Note
from glle_engine.methods.registry import canonical
from glle_engine.metrics.registry import Score
from glle_engine.reliability.alignment import FEWEST
from glle_engine.reliability.refits import HALF_SAMPLES, REFITS
from service.schemas.derived import fields_of
from service.schemas.problems import ProblemOut
from service.schemas.resources import LINKS, MAX_COUNTER, CommandIn, DatasetCommandIn
from worker.records.cache_entry import Entry

_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$"  # names npz members and columns

MAX_METHODS = 32
MAX_REFITS = 400

Parameters = Annotated[
    dict[str, Any],
    Field(
        default_factory=dict,
        description="Parameters by name; missing ones have their defaults. GET /v1/methods has the schemas.",
        examples=[{"n_neighbors": 10}],
    ),
]


MethodName = Annotated[str, AfterValidator(canonical)]


class MethodIn(CommandIn):
    """Method with its parameters."""

    method: MethodName = Field(
        description="Name of an embedding method: GET /v1/methods. Spellings such as tsne mean the same.",
        examples=["pca"],
    )
    parameters: Parameters


class ScoredIn(DatasetCommandIn):
    """Data set, and the scores of its embeddings."""

    labels: str | None = Field(
        default=None,
        description="Id of a data set with the class of each point: its labels, else its only column. For supervised "
        "methods, and for scores that need labels.",
    )
    truth: str | None = Field(
        default=None,
        description="Id of a data set with the true coordinates: its own (a synthetic data set may name itself), else "
        "its values. For scores that need the truth.",
    )
    scores: list[str] | None = Field(
        default=None,
        max_length=100,
        description="Names of GET /v1/scores. By default all that labels and truth allow, and those with `most_points` "
        "up to a tenth of it; [] for none.",
    )
    n_neighbors: int | None = Field(
        default=None, ge=1, description="Neighbors that the scores use; by default 10, or fewer for few points."
    )


class EmbeddingIn(ScoredIn, MethodIn):
    """Embedding to compute."""


class ComparedIn(MethodIn):
    """Method to compare."""

    label: str | None = Field(
        default=None,
        pattern=_LABEL,
        description="Name of its row; by default the method, numbered from its second row on.",
    )


class ComparisonIn(ScoredIn):
    """Methods to compare on one data set."""

    methods: list[ComparedIn] = Field(min_length=2, max_length=MAX_METHODS, description="One row each, in this order.")
    align: Literal["first", "truth"] | None = Field(
        default=None,
        description="Also return the embeddings, rotated and scaled to the first that succeeds, or to the truth.",
    )
    spread: int | None = Field(
        default=None,
        ge=FEWEST,
        le=MAX_REFITS,
        description="Refit each method to so many random halves of the data, forty for a start, and return how much of "
        "its picture remains, as POST /v1/embeddings/{id}/spread does. By default none.",
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        labels = [row.label for row in self.methods if row.label is not None]
        if len(set(labels)) != len(labels):
            raise ValueError("labels must differ: give each row another one, or none")
        if self.align == "truth" and self.truth is None:
            raise ValueError("align='truth' needs truth: give the id of a data set with the true coordinates")
        return self

    def row_labels(self) -> list[str]:
        """Return a distinct label for each row."""
        taken = {row.label for row in self.methods if row.label is not None}
        labels = []
        for row in self.methods:
            name, number = row.label or row.method, 1
            while row.label is None and name in taken:
                number += 1
                name = f"{row.method}-{number}"
            taken.add(name)
            labels.append(name)
        return labels


class SpreadIn(CommandIn):
    """Refits that show how far an embedding moves."""

    half_samples: int = Field(
        default=HALF_SAMPLES,
        ge=FEWEST,
        le=MAX_REFITS,
        description="Random halves of the data to which the method is refitted; forty or more rank points.",
    )
    refits: int = Field(
        default=REFITS,
        ge=0,
        le=MAX_REFITS,
        description="Refits of all points with other seeds, of a method that has a seed.",
    )
    seed: int = Field(default=0, ge=0, le=MAX_COUNTER, description="Of the choice of the halves.")
    share: float = Field(
        default=0.5,
        ge=0.5,
        le=0.632,
        description="Share of the points in each sample: 0.5, or 0.632 where half of the points are too few. The "
        "movement is corrected for it.",
    )
    labels: str | None = Field(
        default=None,
        description="Id of a data set with the class of each point: its labels, else its only column. By default the "
        "labels of the embedding's data set, or clusters of the embedding if there are none.",
    )
    n_neighbors: int = Field(default=10, ge=1, description="Neighbors in the embedding that may stay neighbors.")


class EstimateIn(MethodIn):
    """Embedding to estimate: of a data set, or of n points with d features."""

    dataset: str | None = Field(default=None, description="Id of a data set.")
    n: int | None = Field(
        default=None, ge=1, le=10**9, description="Points, if there is no data set.", examples=[10000]
    )
    d: int | None = Field(default=None, ge=1, le=10**9, description="Features, if there is no data set.", examples=[64])

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if (self.dataset is None) == (self.n is None) or (self.n is None) != (self.d is None):
            raise ValueError("give either dataset, or n and d")
        return self


class EstimateOut(BaseModel):
    """Expected cost of an embedding, and whether the service accepts it."""

    method: str
    parameters: dict[str, Any] = Field(description="Every parameter with its value.")
    n: int
    d: int
    seconds: float | None = Field(description="Expected on one core of a typical machine; null if it is infeasible.")
    bytes: float | None = Field(description="Expected peak of the working memory; null if it is infeasible.")
    growth: str = Field(description="Growth of the time with n.", examples=["n log n"])
    allowed_seconds: float = Field(description="Limit on the expected time of a job.")
    allowed_bytes: int = Field(description="Limit on its expected memory.")
    most_points: int | None = Field(
        description="Largest number of points with d features within both limits, at most n; null if there is none."
    )
    problem: ProblemOut | None = Field(description="Reason for a refusal; null if it is accepted.")


@fields_of(Note)
class NoteOut(BaseModel):
    """Warning or finding."""


class EmbeddingOut(BaseModel):
    """Embedding without its coordinates."""

    id: str = Field(description="Digest of data set, method, all parameters, labels and engine version.")
    dataset: str = Field(description="Id of its data set.")
    method: str
    parameters: dict[str, Any] = Field(description="Every parameter with its value.")
    labels: str | None = Field(description="Data set with the classes for a supervised method.")
    engine: str = Field(description="Version of the engine.")
    n: int = Field(description="Points.")
    eigenvalues: list[float] | None = Field(description="Eigenvalues of spectral methods, in the order of the columns.")
    figures: dict[str, Any] = Field(description="Figures of the method, such as log_likelihood and iterations.")
    notes: list[NoteOut] = Field(description="Warnings and findings, with the remedy.")
    seconds: dict[str, float] = Field(description="Duration of each stage.")
    map: dict[str, list[int]] | None = Field(
        default=None, description="Shapes of the arrays of its map to new points, by name; null without a map."
    )
    links: dict[str, str] = Field(description=LINKS)

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Return the JSON of a cache entry."""
        members = {name: value for name, value in entry.meta.items() if name != "sha256"}
        links = embedding_links(members["id"], members["dataset"])
        if members.get("map"):
            links["transform"] = f"{links['self']}/transform"
        return cls(**members, links=links)


@fields_of(Score)
class ScoreOut(BaseModel):
    """Score of embeddings."""


class ScoreList(BaseModel):
    """All scores."""

    items: list[ScoreOut]


def embedding_links(id_: str, dataset: str) -> dict[str, str]:
    """Return the links of an embedding."""
    url = f"/v1/embeddings/{id_}"
    return {
        "self": url,
        "coordinates": f"{url}/coordinates",
        "arrays": f"{url}/arrays",
        "spread": f"{url}/spread",
        "dataset": f"/v1/datasets/{dataset}",
    }
