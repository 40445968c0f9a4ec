"""Embeddings by any method of the engine's registry, their scores, and the placement of new points.

The id of an embedding is a digest of its inputs, so that requests with equal inputs share one embedding. Scores are not
part of an embedding, because they also depend on other parameters of a request. If the method can place new points, an
embedding is stored with the arrays of the mapping from data to embedding.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine import NUMBERS, GlleError
from glle_engine.base.texts import Note, Text
from worker.analyses.base import AnalysisSpec
from worker.base.problems import notes_in_http
from worker.records.cache_entry import Entry
from worker.records.ids import digest

if TYPE_CHECKING:
    from glle_engine.base.progress import OnProgress
    from glle_engine.methods.base import Method
    from worker.analyses.base import AnalysisContext
    from worker.records.cache_entry import Array

MAP = "map_"  # prefix, in an embedding's entry, of the arrays of the mapping that places new points


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All inputs of an embedding: a data set, a method and its parameters."""

    dataset: str
    method: str
    parameters: dict[str, Any]  # values of all parameters of the method
    labels: str | None = None  # id of the data set with the classes, for a supervised method
    engine: str = NUMBERS  # results that engines with another `NUMBERS` computed are not reused

    @property
    def id(self) -> str:
        """Id of the embedding, a digest of the inputs."""
        return "emb_" + digest(asdict(self))

    @property
    def owners(self) -> tuple[str, str]:
        """Ids of the data set and the embedding; a result about the embedding is deleted with either of them."""
        return self.dataset, self.id

    def compute(self, context: AnalysisContext, on_progress: OnProgress) -> Entry:
        """Compute the embedding (n, p), and return it with the mapping for new points and diagnostics."""
        from glle_engine.methods import method  # noqa: PLC0415 # tasks load the methods, the stores do not

        embedder = method(self.method)
        labels = None if self.labels is None else classes_of(context, self.labels)
        spec = embedder.spec.from_dict(self.parameters)
        values = np.asarray(context.values(self.dataset), np.float64)
        result = embedder.embed(values, spec, on_progress, labels=labels)
        stored = None if result.map is None else result.map.arrays
        metadata = {
            "id": self.id,
            **asdict(self),
            "n": len(result.Y),
            "eigenvalues": None if result.eigenvalues is None else result.eigenvalues.tolist(),
            "figures": result.figures,
            "notes": notes_in_http(result.notes),
            "seconds": {stage: round(seconds, 6) for stage, seconds in result.seconds.items()},
            "map": None if stored is None else {name: list(a.shape) for name, a in stored.items()},
        }
        return Entry(metadata, {"embedding": result.Y, **{MAP + name: a for name, a in (stored or {}).items()}})

    def place(self, context: AnalysisContext, points: Array, on_progress: OnProgress) -> Array:
        """Return the positions (m, p) of new points (m, d) in the embedding, which must have a mapping.

        A missing embedding is computed and stored first.
        """
        from glle_engine.methods import Embedding, method  # noqa: PLC0415 # tasks load the methods, the stores do not

        embedder = method(self.method)
        assert embedder.restore is not None
        entry = self.load_or_compute(context, on_progress)
        values = entry.meta["eigenvalues"]
        embedding = Embedding(
            np.asarray(entry.arrays["embedding"]),
            None if values is None else np.array(values),
            entry.meta["figures"],
        )
        restored = embedder.restore(
            lambda: np.asarray(context.values(self.dataset), np.float64),
            embedder.spec.from_dict(self.parameters),
            embedding,
            map_arrays(entry),
        )
        return restored.transform(points, on_progress)

    def load_or_compute(self, context: AnalysisContext, on_progress: OnProgress) -> Entry:
        """Return the stored embedding; compute and store it if it is missing."""
        entry = context.find_embedding(self.id) or context.keep_embedding(self.id, self.compute(context, on_progress))
        return Entry({name: value for name, value in entry.meta.items() if name != "sha256"}, entry.arrays)


def map_arrays(entry: Entry) -> dict[str, Array]:
    """Return the arrays of the mapping that places new points, by name; empty if the embedding has no mapping."""
    return {name.removeprefix(MAP): np.asarray(a) for name, a in entry.arrays.items() if name.startswith(MAP)}


@dataclass(frozen=True, kw_only=True)
class ScoreSpec:
    """Parameters of the scores of an embedding, such as trustworthiness: a base class of requests with scores."""

    scores: tuple[str, ...] = ()  # names of scores, in the engine's order
    score_neighbors: int = 10  # number of neighbors in scores of neighborhoods
    labels: str | None = None  # id of the data set with the classes
    truth: str | None = None  # id of the data set with the true coordinates

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", tuple(self.scores))  # JSON has a list

    def evaluate(
        self, context: AnalysisContext, dataset: str, Y: Array, on_progress: OnProgress
    ) -> tuple[dict[str, float], list[dict[str, Any]]]:
        """Return the scores of the embedding `Y` (n, p) of a data set by name, and notes on scores that failed."""
        from glle_engine.metrics.registry import score  # noqa: PLC0415 # tasks load the methods, the stores do not

        X = np.asarray(context.values(dataset), np.float64)
        labels = None if self.labels is None else classes_of(context, self.labels)
        truth = None if self.truth is None else truth_of(context, self.truth)
        options: dict[str, Any] = {"score_neighbors": self.score_neighbors, "labels": labels, "truth": truth}
        scores: dict[str, float] = {}
        notes: list[Note] = []
        for name in self.scores:
            try:
                scores |= score(X, Y, [name], **options, on_progress=on_progress)
            except GlleError as error:
                notes.append(Note("no-score", Text(f"{name}: ", error.text)))
        return scores, notes_in_http(notes)


@dataclass(frozen=True, kw_only=True)
class EmbeddingSpec(AnalysisSpec, ScoreSpec):
    """Parameters of an embedding and its scores; without scores, the result is the embedding itself."""

    kind = "embedding"
    main = "embedding"

    dataset: str
    method: str
    parameters: dict[str, Any]

    @property
    def recipe(self) -> Recipe:
        """All inputs of the embedding, which determine its id; the parameters of scores are not inputs."""
        from glle_engine.methods import METHODS  # noqa: PLC0415 # tasks load the methods, the stores do not

        embedder = METHODS.get(self.method)  # None in the record of a job whose method was removed since
        return Recipe(
            dataset=self.dataset,
            method=self.method,
            parameters=self.parameters,
            labels=self.labels if embedder is not None and _needs_labels(embedder, self.parameters) else None,
            engine=self.engine,
        )

    def key(self, subject: str) -> str:
        """Return the key under which the result is stored; `subject` is the id of the data set.

        Without scores, the result is the embedding itself, and the key is the id of the embedding.
        """
        return super().key(subject) if self.scores else self.recipe.id

    def owners(self, subject: str) -> tuple[str, ...]:  # noqa: ARG002 # the recipe has the data set
        """Return the ids of the data set and the embedding; the result is deleted with either of them."""
        return self.recipe.owners

    def run(self, context: AnalysisContext) -> Entry:
        """Return the embedding (n, p), the method's diagnostics and, if requested, the scores."""
        if not self.scores:
            return self.recipe.compute(context, context.on_progress)
        entry = self.recipe.load_or_compute(context, context.on_progress)
        Y = entry.arrays["embedding"]
        scores, notes = self.evaluate(context, self.dataset, Y, context.on_progress)
        scored = {"scores": scores, "truth": self.truth, "score_neighbors": self.score_neighbors}
        return Entry({**entry.meta, **scored, "notes": [*entry.meta["notes"], *notes]}, {"embedding": Y})


@dataclass(frozen=True, kw_only=True)
class PlacementSpec(AnalysisSpec):
    """Parameters of a placement: the points of a data set are placed in an embedding by the embedding's mapping."""

    kind = "placement"
    main = "embedding"

    dataset: str  # id of the data set with the new points
    embedding: str  # id of the embedding
    recipe: dict[str, Any]  # fields of the embedding's `Recipe`

    def owners(self, subject: str) -> tuple[str, ...]:  # noqa: ARG002 # the new points
        """Return the ids of the embedding and its data set; the result is deleted with either of them."""
        return Recipe(**self.recipe).owners

    def run(self, context: AnalysisContext) -> Entry:
        """Return the positions (m, p) of the new points in the embedding."""
        points = np.asarray(context.values(self.dataset, self.recipe["dataset"]), np.float64)
        places = Recipe(**self.recipe).place(context, points, context.on_progress)
        return Entry({"dataset": self.dataset, "embedding": self.embedding}, {"embedding": places})


def _needs_labels(embedder: Method[Any], parameters: dict[str, Any]) -> bool:
    """Return whether an embedding by a method depends on labels; False if the parameters are no longer valid."""
    with suppress(GlleError):
        return embedder.needs_labels(embedder.spec.from_dict(parameters))
    return False


def classes_of(context: AnalysisContext, dataset: str) -> Array:
    """Return the class (n,) of each point as int64: the labels of a data set or, without labels, its first column.

    If the values are texts, or numbers that are not all integers, classes are the ranks of the distinct values.
    """
    labels = context.extras(dataset).get("labels")
    raw = np.asarray(context.values(dataset))[:, 0] if labels is None else labels
    if raw.dtype.kind != "U" and np.array_equal(raw, np.round(raw)):
        return raw.astype(np.int64)
    return np.unique(raw, return_inverse=True)[1].astype(np.int64)


def truth_of(context: AnalysisContext, dataset: str) -> Array:
    """Return the true coordinates (n, q) of a data set as float64; without coordinates, its values."""
    coordinates = context.extras(dataset).get("coordinates")
    return np.asarray(context.values(dataset) if coordinates is None else coordinates, np.float64)
