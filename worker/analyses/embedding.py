"""Embeddings by any method of the registry: what they are functions of, the work, and what else is asked of them.

An embedding is cached by what it is a function of, so that an embedding and a comparison that ask for the same one
share it. Scores are of the request: another truth or another neighbourhood is another judgement of the same places.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine import NUMBERS, GlleError
from glle_engine.methods import METHODS, method
from glle_engine.metrics.registry import score
from worker.analyses.base import AnalysisSpec, results_prefix
from worker.records.cache_entry import Entry
from worker.records.ids import digest

if TYPE_CHECKING:
    from glle_engine.base.progress import OnProgress
    from worker.analyses.base import Desk
    from worker.records.cache_entry import Array


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that an embedding is a function of.

    Parameters
    ----------
    parameters
        Of the method, every one of them.
    labels
        The data set of the classes; None for a method that takes none.
    engine
        The version of the engine's numbers.

    """

    dataset: str
    method: str
    parameters: dict[str, Any]
    labels: str | None = None
    engine: str = NUMBERS

    @property
    def id(self) -> str:
        """The embedding's id: its digest."""
        return "emb_" + digest(asdict(self))

    @property
    def cache_key(self) -> str:
        """Where the embedding is cached; it goes with its data set."""
        return f"{results_prefix(self.dataset)}coordinates:{self.id}"

    def made(self, desk: Desk, tell: OnProgress) -> Entry:
        """Return the embedding (n, p), and what the method says of it."""
        one = method(self.method)
        labels = None if self.labels is None else classes_of(desk, self.labels)
        spec = one.spec.from_dict(self.parameters)
        found = one.embed(np.asarray(desk.values(self.dataset), np.float64), spec, tell, labels=labels)
        told = {
            "id": self.id,
            **asdict(self),
            "n": len(found.Y),
            "eigenvalues": None if found.eigenvalues is None else found.eigenvalues.tolist(),
            "figures": found.figures,
            "notes": [asdict(note) for note in found.notes],
            "seconds": {stage: round(seconds, 6) for stage, seconds in found.seconds.items()},
        }
        return Entry(told, {"embedding": found.Y})

    def kept(self, desk: Desk, tell: OnProgress) -> Entry:
        """Return the embedding from the cache, or made and put there."""
        known = desk.kept(self.cache_key) or desk.keep(self.cache_key, self.made(desk, tell))
        return Entry({name: value for name, value in known.meta.items() if name != "sha256"}, known.arrays)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """By what embeddings are judged.

    Parameters
    ----------
    scores
        Names of the engine's scores, in its order.
    n_neighbors
        Of the scores that look at neighbourhoods.
    labels, truth
        Data sets of the classes and of the true coordinates, for the scores that need them.

    """

    scores: tuple[str, ...] = ()
    n_neighbors: int = 10
    labels: str | None = None
    truth: str | None = None

    def of(self, desk: Desk, dataset: str, Y: Array, tell: OnProgress) -> tuple[dict[str, float], list[dict[str, str]]]:
        """Return the scores of an embedding of a data set, and a note for each that cannot be made of it."""
        X = np.asarray(desk.values(dataset), np.float64)
        labels = None if self.labels is None else classes_of(desk, self.labels)
        truth = None if self.truth is None else truth_of(desk, self.truth)
        found: dict[str, float] = {}
        notes = []
        for name in self.scores:
            try:
                found |= score(X, Y, [name], n_neighbors=self.n_neighbors, labels=labels, truth=truth, on_progress=tell)
            except GlleError as error:
                notes.append({"code": "no-score", "message": f"{name}: {error}"})
        return found, notes


@dataclass(frozen=True, kw_only=True)
class EmbeddingSpec(AnalysisSpec):
    """An embedding and its scores; without scores it is the embedding itself."""

    kind = "embedding"
    main = "embedding"

    dataset: str
    method: str
    parameters: dict[str, Any]
    labels: str | None = None
    truth: str | None = None
    scores: tuple[str, ...] = ()
    n_neighbors: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", tuple(self.scores))  # JSON made a list of it

    @property
    def recipe(self) -> Recipe:
        """What the embedding itself is a function of."""
        one = METHODS.get(self.method)  # None in the record of another version's job
        labels = self.labels if one is not None and one.labels else None
        recipe = Recipe(dataset=self.dataset, method=self.method, parameters=self.parameters, labels=labels)
        return replace(recipe, engine=self.engine)

    @property
    def judgement(self) -> Judgement:
        """By what it is judged."""
        return Judgement(scores=self.scores, n_neighbors=self.n_neighbors, labels=self.labels, truth=self.truth)

    @property
    def total(self) -> int:
        """The method counts for itself."""
        return 1

    def cache_key(self, subject: str) -> str:
        """Return where the result is cached."""
        return super().cache_key(subject) if self.scores else self.recipe.cache_key

    def run(self, desk: Desk) -> Entry:
        """Return the embedding (n, p), what the method says of it, and the scores."""
        if not self.scores:
            return self.recipe.made(desk, desk.tell)
        entry = self.recipe.kept(desk, desk.tell)
        scores, notes = self.judgement.of(desk, self.dataset, entry.arrays["embedding"], desk.tell)
        judged = {"scores": scores, "truth": self.truth, "n_neighbors": self.n_neighbors}
        return Entry({**entry.meta, **judged, "notes": [*entry.meta["notes"], *notes]}, entry.arrays)


def classes_of(desk: Desk, dataset: str) -> Array:
    """Return the classes (n,) that a data set tells: the labels kept with it, else its one column.

    Words, and numbers that are not integers, are numbered in their order.
    """
    given = desk.beside(dataset).get("labels")
    raw = np.asarray(desk.values(dataset))[:, 0] if given is None else given
    if raw.dtype.kind != "U" and np.array_equal(raw, np.round(raw)):
        return raw.astype(np.int64)
    return np.unique(raw, return_inverse=True)[1].astype(np.int64)


def truth_of(desk: Desk, dataset: str) -> Array:
    """Return the true coordinates (n, q) that a data set tells: those kept with it, else its values."""
    given = desk.beside(dataset).get("coordinates")
    return np.asarray(desk.values(dataset) if given is None else given, np.float64)
