"""Comparison of several maps of the same data: their audits on the same halves, and which of them to show.

All maps are first audited with two pairs of separate halves of the data. The audits of maps that are clearly worse for
all questions stop there; the other audits go on until they are complete. All maps are compared on the same halves, so
that their differences are paired (`glle_engine.audit.choice`).
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.audit.audit import audits
from glle_engine.audit.choice import Choices, MapFacts, behind, choose
from glle_engine.audit.fidelity import Fidelity
from glle_engine.audit.options import AUDIT_NEIGHBORS
from glle_engine.audit.sources import points_in_space
from glle_engine.base.errors import GlleError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.base.results import brief
from glle_engine.methods.parameters import DistanceSpec
from glle_engine.posterior.posterior import Posterior
from glle_engine.reliability.resamples import resample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.candidates import Candidate
    from glle_engine.audit.result import Audit
    from glle_engine.base.spec import Metric, Standardize
    from glle_engine.reliability.resamples import Resamples

    StartAudit = Callable[[Candidate, Callable[..., Resamples]], Iterator[Audit]]


@dataclass(frozen=True, eq=False)
class Compared:
    """Result of a comparison for one candidate.

    Attributes
    ----------
    candidate : Candidate
    audit : Audit or None
        Preliminary if the map is clearly worse than others; None if the candidate failed.
    facts : MapFacts or None
        What the choice is based on; None if the candidate failed.
    problem : GlleError or None
        Why the candidate failed.
    seconds : float
        Time for the map and its audit.

    """

    candidate: Candidate
    audit: Audit | None = None
    facts: MapFacts | None = None
    problem: GlleError | None = None
    seconds: float = 0.0

    __repr__ = brief


def compare_maps(
    X: ArrayLike,
    candidates: Sequence[Candidate],
    *,
    standardize: Standardize | None = None,
    metric: Metric | None = None,
    score_neighbors: int = AUDIT_NEIGHBORS,
    seed: int = 0,
    on_progress: OnProgress = silent,
    **options: Any,
) -> Iterator[tuple[list[Compared], Choices]]:
    """Yield, each time that the audit of a map has advanced, the maps compared so far, and which of them to show.

    The yielded list is the same object each time and grows; a candidate that fails is in it, too, with its `problem`.

    Parameters
    ----------
    X : (n, d) array-like
        The data.
    candidates : sequence of Candidate
        The maps to compare, in the order in which they are audited.
    standardize, metric, score_neighbors, seed
        As for `audit`. All maps are judged by the same distances of the data, whatever parameters they have.
    on_progress
        Called with (maps done, number of maps, title of a map); its exceptions end the comparison.
    **options
        Further options of each audit, such as `blocks` (`glle_engine.audit.options.AuditOptions`).

    """
    given_space = {"standardize": standardize, "metric": metric}
    space: dict[str, Any] = {name: value for name, value in given_space.items() if value is not None}
    judge = Judge(points_in_space(X, DistanceSpec.from_dict(space)), seed, score_neighbors)

    def start(candidate: Candidate, embed_halves: Callable[..., Resamples]) -> Iterator[Audit]:
        done = len([each for each in compared if each.audit is not None or each.problem is not None])
        return audits(
            X,
            candidate.Y,
            method=candidate.method,
            parameters=candidate.parameters,
            **({} if isinstance(getattr(candidate.Y, "posterior_", candidate.Y), Posterior) else space),
            score_neighbors=score_neighbors,
            seed=seed,
            embed_halves=embed_halves,
            on_progress=lambda *_: on_progress(done, len(candidates), candidate.title),
            **options,
        )

    compared: list[Compared] = []
    open_audits: dict[str, _RunningAudit] = {}
    for candidate in candidates:
        on_progress(len(compared), len(candidates), candidate.title)
        running = _RunningAudit(candidate, judge, start)
        compared.append(running.advance())
        if compared[-1].problem is None:
            open_audits[candidate.label] = running
        yield compared, judge.choose(compared)
    left = behind([each.facts for each in compared if each.facts is not None])
    for number, candidate in enumerate(candidates):
        if candidate.label in open_audits and candidate.label not in left:
            on_progress(len(candidates), len(candidates), candidate.title)
            compared[number] = open_audits[candidate.label].finish()
            yield compared, judge.choose(compared)
    while preliminary := _winners_to_finish(compared, judge.choose(compared)):
        for number in preliminary:
            compared[number] = open_audits[compared[number].candidate.label].finish()
        yield compared, judge.choose(compared)


def _winners_to_finish(compared: Sequence[Compared], choices: Choices) -> list[int]:
    """Return the indices in `compared` of the maps that the choices name although their audits are not complete."""
    named = {label for label in choices.best.values() if label is not None}
    return [
        number
        for number, each in enumerate(compared)
        if each.candidate.label in named and each.audit is not None and each.audit.is_preliminary
    ]


@dataclass(eq=False)
class _RunningAudit:
    """The audit of a candidate while it is not complete, with the maps of halves of the data that it has made so far.

    Attributes
    ----------
    start : callable
        Called with the candidate and a function that embeds random halves of the data. The audit calls this function
        where it would otherwise call `glle_engine.reliability.resamples.resample`; the function also adds the maps to
        `places`. `start` returns an iterator that runs the audit, and yields an `Audit` after each stage.
    places : list of (m, r, p) float64
        For each stage, the positions of the r audited rows in the maps of m halves of the data.
    seconds : float
        Time spent so far.

    """

    candidate: Candidate
    judge: Judge
    start: StartAudit
    places: list[NDArray[np.float64]] = field(default_factory=list)
    seconds: float = 0.0
    audit: Audit | None = None
    _audits: Iterator[Audit] | None = None

    def advance(self) -> Compared:
        """Run one more stage of the audit, and return its result so far; an error is the `problem` of the result."""
        return self._run(lambda audits: next(audits, None))

    def finish(self) -> Compared:
        """Run the rest of the audit, and return its result; an error is the `problem` of the result."""
        return self._run(lambda audits: deque(audits, maxlen=1).pop())

    def _run(self, step: Callable[[Iterator[Audit]], Audit | None]) -> Compared:
        started = time.perf_counter()
        try:
            if self._audits is None:
                self._audits = self.start(self.candidate, self._embed)
            self.audit = step(self._audits) or self.audit
        except GlleError as error:
            return Compared(self.candidate, problem=error)
        self.seconds += time.perf_counter() - started
        assert self.audit is not None
        facts = self.judge.facts_of(self.candidate, self.audit, self.places)
        return Compared(self.candidate, self.audit, facts, None, self.seconds)

    def _embed(self, embedder: Any, count: int, **options: Any) -> Resamples:
        maps = resample(embedder, count, **options)
        self.places.append(maps.places)
        return maps


@dataclass(eq=False)
class Judge:
    """Measures how faithful the maps of a comparison are to the data, and chooses which map to show.

    Attributes
    ----------
    points : (n, d) float64
        The data, transformed for the metric of the comparison.
    seed : int
        Decides which pairs of points are compared (`Fidelity.from_points`).
    score_neighbors : int
        Number of neighbors that are compared.

    """

    points: NDArray[np.float64]
    seed: int = 0
    score_neighbors: int = AUDIT_NEIGHBORS
    _cached: dict[bytes, Fidelity] = field(default_factory=dict)

    def facts_of(self, candidate: Candidate, audit: Audit, places: Sequence[NDArray[np.float64]]) -> MapFacts:
        """Return the facts about a candidate's map, from its audit and the method's maps of halves of the data.

        `places` has an array (m, r, p) for each stage of the audit: the positions of the audited rows (`Audit.rows`) in
        the stage's maps of halves, NaN in maps that failed. A pair in which a map failed is left out.
        """
        n, islands = len(self.points), audit.islands
        halves = np.concatenate([*places]) if places else np.empty((0, 0, 0))
        is_complete = np.isfinite(halves).all(axis=(1, 2)).reshape(-1, 2).all(axis=1)
        halves = halves[np.repeat(is_complete, 2)]
        whole = self._fidelity(np.arange(n))
        k = max(1, min(self.score_neighbors, n // 5))
        sizes = islands.sizes / n
        is_separate = islands.of_halves if islands.of_halves is not None else np.zeros((len(halves), len(sizes)), bool)
        some = whole if audit.rows is None else self._fidelity(audit.rows)
        k_of_rows = min(k, max(1, len(some.points) // 5))
        return MapFacts(
            label=candidate.label,
            title=candidate.title,
            method=candidate.name,
            level=audit.level,
            beyond_chance=audit.beyond_chance,
            kept=whole.kept(audit.embedding, k),
            kept_in_halves=np.array([some.kept(Y, k_of_rows) for Y in halves]),
            layout=np.array([some.layout(Y) for Y in halves]).reshape(-1, 2),
            islands=islands.count,
            trusted=int(islands.stays.sum()) if islands.count else 0,
            grouped=float(sizes[islands.stays].sum()) if islands.count else 0.0,
            in_groups=float(sizes[islands.in_data].sum()) if islands.count else 0.0,
            grouped_in_halves=(is_separate & islands.stays) @ sizes,
            is_complete=not audit.is_preliminary,
            asks=audit.statement.asks,
        )

    def choose(self, compared: Sequence[Compared]) -> Choices:
        """Return which map to show for neighbors, for the layout and for groups; failed candidates are left out."""
        return choose([each.facts for each in compared if each.facts is not None], len(self.points))

    def _fidelity(self, rows: NDArray[np.intp]) -> Fidelity:
        key = rows.tobytes()
        if key not in self._cached:
            self._cached[key] = Fidelity.from_points(np.ascontiguousarray(self.points[rows]), self.seed)
        return self._cached[key]
