"""The JSON of embeddings and comparisons: what is asked for, and what is told."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from service.schemas.base import CommandIn
from service.schemas.problems import ProblemOut
from worker.storage.array_cache import Entry

_DATASET = "ds_127ecc1c5da53ccc7b4b569022a22285"
_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$"  # names a member of an npz file, and columns

MOST_METHODS = 32

Parameters = Annotated[
    dict[str, Any],
    Field(
        default_factory=dict,
        description="Of the method, by name; what is left out has its default. GET /v1/methods has their schemas.",
        examples=[{"n_neighbors": 10}],
    ),
]


class MethodIn(CommandIn):
    """A method with its parameters."""

    method: str = Field(description="Name of an embedding method: GET /v1/methods.", examples=["pca"])
    parameters: Parameters


class ScoredIn(CommandIn):
    """A data set, and by what its embeddings are judged."""

    dataset: str = Field(description="Id of a data set.", examples=[_DATASET])
    labels: str | None = Field(
        default=None,
        description="Id of a data set that tells the class of each point: the labels kept with it, else its one "
        "column. For supervised methods, and for scores that need them.",
    )
    truth: str | None = Field(
        default=None,
        description="Id of a data set that tells the true coordinates: those kept with it (of a synthetic one its own "
        "id will do), else its values. For scores that need them.",
    )
    scores: list[str] | None = Field(
        default=None,
        max_length=100,
        description="Names of GET /v1/scores; unless told all that labels and truth allow, those that are limited to "
        "`most_points` up to a tenth of it; none with [].",
    )
    n_neighbors: int | None = Field(
        default=None, ge=1, description="Neighbours that the scores look at; unless told 10, or fewer for few points."
    )


class EmbeddingIn(ScoredIn, MethodIn):
    """An embedding to make."""


class ComparedIn(MethodIn):
    """A method to compare."""

    label: str | None = Field(
        default=None,
        pattern=_LABEL,
        description="What its row is called; unless told the method's name, numbered from its second row on.",
    )


class ComparisonIn(ScoredIn):
    """Methods to compare on one data set."""

    methods: list[ComparedIn] = Field(min_length=2, max_length=MOST_METHODS, description="A row each, in their order.")
    align: Literal["first", "truth"] | None = Field(
        default=None,
        description="Also return the embeddings, turned and scaled to the first that succeeds, or to the truth.",
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        given = [row.label for row in self.methods if row.label is not None]
        if len(set(given)) != len(given):
            raise ValueError("labels are to differ: give each row its own, or none")
        if self.align == "truth" and self.truth is None:
            raise ValueError("align='truth' needs truth: give the id of a data set that tells it")
        return self

    def labelled(self) -> list[str]:
        """Return the label of each row, distinct."""
        taken = {row.label for row in self.methods if row.label is not None}
        found = []
        for row in self.methods:
            name, number = row.label or row.method, 1
            while row.label is None and name in taken:
                number += 1
                name = f"{row.method}-{number}"
            taken.add(name)
            found.append(name)
        return found


class EstimateIn(MethodIn):
    """An embedding whose cost is asked for: of a data set that is there, or of one of so many points and features."""

    dataset: str | None = Field(default=None, description="Id of a data set.")
    n: int | None = Field(default=None, ge=1, le=10**9, description="Points, without a data set.", examples=[10000])
    d: int | None = Field(default=None, ge=1, le=10**9, description="Features, without a data set.", examples=[64])

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if (self.dataset is None) == (self.n is None) or (self.n is None) != (self.d is None):
            raise ValueError("give either dataset, or n and d")
        return self


class EstimateOut(BaseModel):
    """What an embedding is expected to take, and whether it would be made."""

    method: str
    parameters: dict[str, Any] = Field(description="Every parameter with its value.")
    n: int
    d: int
    seconds: float | None = Field(description="Expected on one core of a usual machine; null where it cannot be done.")
    bytes: float | None = Field(description="Working memory at its peak, likewise.")
    growth: str = Field(description="How the time grows with n.", examples=["n log n"])
    allowed_seconds: float = Field(description="What a job may be expected to take.")
    allowed_bytes: int = Field(description="What its memory may be expected to be.")
    most_points: int | None = Field(
        description="Points of as many features that would be within both; n, if n is; null: not even few."
    )
    problem: ProblemOut | None = Field(description="Why it would be refused; null when it would be made.")


class NoteOut(BaseModel):
    """Something the user should know."""

    code: str
    message: str


class EmbeddingOut(BaseModel):
    """An embedding, but for its coordinates."""

    id: str = Field(description="Digest of data set, method, all parameters, labels and engine version.")
    dataset: str = Field(description="Id of its data set.")
    method: str
    parameters: dict[str, Any] = Field(description="Every parameter with its value.")
    labels: str | None = Field(description="The data set of the classes that a supervised method had.")
    engine: str = Field(description="Version of the engine.")
    n: int = Field(description="Points.")
    eigenvalues: list[float] | None = Field(description="Of spectral methods, in the order of the columns.")
    figures: dict[str, Any] = Field(description="What the method found out: log_likelihood, iterations and so on.")
    notes: list[NoteOut] = Field(description="What is remarkable, with the remedy.")
    seconds: dict[str, float] = Field(description="Time by stage, when it was made.")
    links: dict[str, str] = Field(description="Where to go from here.")

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Return what is told of an entry of the cache."""
        told = {name: value for name, value in entry.meta.items() if name != "sha256"}
        return cls(**told, links=embedding_links(told["id"], told["dataset"]))


class ScoreOut(BaseModel):
    """A score of embeddings."""

    name: str
    title: str
    about: str
    needs: Literal["nothing", "labels", "truth"] = Field(description="What it needs beside data and embedding.")
    better: Literal["higher", "lower"]
    most_points: int | None = Field(description="It is not made of more.")
    growth: str = Field(description="How its time grows with n.")
    reproducible: bool = Field(description="Whether it has the same bits on every processor.")


class ScoreList(BaseModel):
    """All scores."""

    items: list[ScoreOut]


def embedding_links(id_: str, dataset: str) -> dict[str, str]:
    """Return the links of an embedding."""
    here = f"/v1/embeddings/{id_}"
    return {"self": here, "coordinates": f"{here}/coordinates", "dataset": f"/v1/datasets/{dataset}"}
