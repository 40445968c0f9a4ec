"""Audits of the maps that a comparison compares, and the choice of the maps to recommend.

Each map is by one method, and is called a candidate. A candidate first gets a short audit, by two pairs of random
halves of the data. Candidates that are not clearly behind the others (`glle_engine.audit.choice`) then get a whole
audit. Both audits are stored.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from glle_engine.audit.candidates import Candidate
from glle_engine.audit.choice import MapFacts, behind, choose
from glle_engine.audit.comparison import Judge
from glle_engine.audit.sources import points_in_space
from glle_engine.methods.parameters import DistanceSpec
from worker.analyses.audit import AuditSpec
from worker.analyses.base import FATAL
from worker.analyses.embedding import Recipe
from worker.base.problems import problem_of
from worker.records.cache_entry import Array, Entry
from worker.records.ids import digest

if TYPE_CHECKING:
    from glle_engine.audit.choice import Choices
    from glle_engine.base.progress import OnProgress
    from worker.analyses.base import AnalysisContext

# Members of a candidate's row that are filled from the short audit, and then from the whole audit.
_FROM_AUDIT = ("embedding", "seconds", "eigenvalues", "figures", "scores", "verdict", "lines", "remains")
# Parameters of the comparison from which the key of a stored audit is made, in addition to the audit's parameters.
_INPUTS = ("labels", "truth", "scores", "score_neighbors", "standardize", "metric")

log = logging.getLogger(__name__)


class Request(Protocol):
    """Protocol of the comparison that `CandidateMaps` works on: the maps to compare, and how to score and store them.

    `worker.analyses.comparison.ComparisonSpec` implements it.
    """

    @property
    def dataset(self) -> str:
        """Id of the data set."""

    @property
    def methods(self) -> tuple[dict[str, Any], ...]:
        """The maps to compare, called candidates: a dictionary for each.

        Members are ``label``, ``title``, ``method`` and ``parameters``; ``problem``: why this map cannot be made for
        these data, or None; and ``audit``: the parameters of its audit (`AuditSpec.to_dict`), or None.
        """

    @property
    def total(self) -> int:
        """Number of candidates."""

    def key(self, subject: str) -> str:
        """Return the key of the comparison's result."""

    def evaluate(
        self, context: AnalysisContext, dataset: str, Y: Array, on_progress: OnProgress
    ) -> tuple[dict[str, float], list[dict[str, Any]]]:
        """Return the scores of an embedding by name, and notes on scores that failed."""

    def entry(self, context: AnalysisContext, rows: list[dict[str, Any]], embeddings: dict[str, Array]) -> Entry:
        """Make the comparison's result from `rows`, one for each candidate, and `embeddings`, by candidate's label."""


@dataclass(frozen=True)
class CandidateMaps:
    """Audits the maps of a comparison (the candidates) in one task, and chooses the maps to recommend.

    Attributes
    ----------
    spec : Request
    context : AnalysisContext
    problems : dict of str to dict
        Problems of the candidates that failed in this task, by label.

    """

    spec: Request
    context: AnalysisContext
    problems: dict[str, dict[str, Any]] = field(default_factory=dict)

    def audit(self, row: dict[str, Any], *, is_whole: bool) -> None:
        """Make the short or the whole audit of one map, then publish the result so far as the partial result.

        The whole audit of a map that is clearly behind the others is left out. `row` is one of `spec.methods`.
        """
        if is_whole and row["label"] in self._behind():
            return
        self._audit_or_note_problem(row, is_whole=is_whole)
        self.context.publish_partial(self.spec.key(self.context.subject), self._answer())

    def choose(self) -> Entry:
        """Make the audits that are missing; return a row for each candidate, and which maps are recommended.

        Only a map with a whole audit is recommended. A whole audit may change the scores so that another map is best,
        and then this map also gets a whole audit.
        """
        for row in self.spec.methods:
            if row["problem"] is None and row["label"] not in self._stored_audits():
                self._audit_or_note_problem(row, is_whole=False)
        left = self._behind()
        for row in self.spec.methods:
            if row["label"] in self._stored_audits().keys() - left:
                self._audit_or_note_problem(row, is_whole=True)
        while named := self._chosen_preliminary():
            for row in named:
                self._audit_or_note_problem(row, is_whole=True)
        return self._answer()

    def _audit_or_note_problem(self, row: dict[str, Any], *, is_whole: bool) -> None:
        self.context.on_progress(min(len(self._stored_audits()), self.spec.total), self.spec.total, row["label"])
        try:
            self._audit(row, is_whole=is_whole)
        except FATAL:
            raise
        except Exception as error:
            if (problem := problem_of(error)).is_internal:
                log.exception("A candidate of a comparison failed")
            self.problems[row["label"]] = problem.to_dict()

    def _audit(self, row: dict[str, Any], *, is_whole: bool) -> None:
        """Audit the map of a candidate, unless this audit is stored already, and store the outcome.

        `choose` later compares the stored outcomes of all candidates. `row` is the candidate, one of `spec.methods`.
        With `is_whole`, the audit is the whole one, otherwise the short one, by two pairs of random halves of the data.
        """
        context, key = self.context, self._part_key(row, is_whole=is_whole)
        if context.find_part(key) is not None:
            return
        spec, places, started = AuditSpec.from_dict(row["audit"]), list[Array](), time.perf_counter()
        audits = spec.audits(context, lambda halves: places.append(halves.places))
        audit = deque(audits, maxlen=1).pop() if is_whole else next(audits)
        if not audit.is_preliminary and context.find_result(spec) is None:
            context.keep_result(spec, spec.entry(audit, context.subject))
        judge = Judge(self._points(), spec.seed, spec.score_neighbors)
        candidate = Candidate(row["label"], row["title"], row["method"])
        facts = judge.facts_of(candidate, audit, places)
        scores, notes = self.spec.evaluate(context, self.spec.dataset, audit.embedding, context.on_progress)
        embedded: dict[str, Any] = {"seconds": {}, "eigenvalues": None, "figures": None, "notes": []}
        if spec.recipe is not None:
            entry = Recipe(**spec.recipe).load_or_compute(context, context.on_progress)
            embedded = {name: entry.meta[name] for name in embedded}
        meta = {
            **embedded,
            "seconds": {**embedded["seconds"], "audit": round(time.perf_counter() - started, 6)},
            "embedding": spec.embedding,
            "scores": scores,
            "notes": [*embedded["notes"], *notes],
            "verdict": audit.verdict,
            "lines": [line.to_dict() for line in audit.lines],
            "remains": audit.remains,
            "facts": facts.to_dict(),
        }
        context.keep_part(key, Entry(meta, {"embedding": audit.embedding}), spec.owners(context.subject))

    def _points(self) -> Array:
        """Return the data (n, q) after `standardize` and `metric`: all maps are judged by distances in this space."""
        parameters = {name: getattr(self.spec, name) for name in ("standardize", "metric")}
        space = DistanceSpec.from_dict({name: value for name, value in parameters.items() if value is not None})
        return points_in_space(np.asarray(self.context.values(self.spec.dataset), np.float64), space)

    def _part_key(self, row: dict[str, Any], *, is_whole: bool) -> str:
        inputs = {"audit": row["audit"], **{name: getattr(self.spec, name) for name in _INPUTS}}
        return f"{self.spec.dataset}:compared:{digest(inputs)}:{'whole' if is_whole else 'first'}"

    def _stored_audits(self) -> dict[str, Entry]:
        """Return the stored audit of each candidate, by label: the whole audit, or else the short audit."""
        entries = {}
        for row in self.spec.methods:
            if row["problem"] is None:
                whole = self.context.find_part(self._part_key(row, is_whole=True))
                if (entry := whole or self.context.find_part(self._part_key(row, is_whole=False))) is not None:
                    facts = {**entry.meta["facts"], "label": row["label"], "title": row["title"]}
                    entries[row["label"]] = Entry({**entry.meta, "facts": facts}, entry.arrays)
        return entries

    def _behind(self) -> set[str]:
        return behind([_facts(entry) for entry in self._stored_audits().values()])

    def _choices(self, audits: dict[str, Entry]) -> Choices:
        return choose([_facts(entry) for entry in audits.values()], self.context.record_of(self.spec.dataset).n)

    def _chosen_preliminary(self) -> list[dict[str, Any]]:
        """Return the candidates that the scores so far would recommend, and that have only a short audit.

        Each is one of `spec.methods`. Candidates whose audit has failed are left out.
        """
        audits = self._stored_audits()
        named = {label for label in self._choices(audits).best.values() if label is not None} - self.problems.keys()
        preliminary = {label for label in named if not _facts(audits[label]).is_complete}
        return [row for row in self.spec.methods if row["label"] in preliminary]

    def _answer(self) -> Entry:
        """Return the result so far: a row for each candidate that was audited or failed, and the recommended maps."""
        audits = self._stored_audits()
        rows = [
            self._row(row, audits.get(row["label"]))
            for row in self.spec.methods
            if row["label"] in audits or row["problem"] is not None or row["label"] in self.problems
        ]
        embeddings = {label: np.asarray(entry.arrays["embedding"]) for label, entry in audits.items()}
        entry = self.spec.entry(self.context, rows, embeddings)
        return Entry({**entry.meta, **self._choices(audits).to_dict()}, entry.arrays)

    def _row(self, row: dict[str, Any], audited: Entry | None) -> dict[str, Any]:
        shown = {name: row[name] for name in ("label", "title", "method", "parameters")}
        if audited is None:
            problem = row["problem"] or self.problems[row["label"]]
            empty = dict.fromkeys((*_FROM_AUDIT, "level", "facts"))
            return {**shown, **empty, "is_preliminary": False, "notes": [], "problem": problem}
        facts = _facts(audited)
        return {
            **shown,
            **{name: audited.meta[name] for name in (*_FROM_AUDIT, "notes")},
            "level": facts.level,
            "is_preliminary": not facts.is_complete,
            "facts": facts.numbers(),
            "problem": None,
        }


def _facts(entry: Entry) -> MapFacts:
    return MapFacts.from_dict(entry.meta["facts"])
