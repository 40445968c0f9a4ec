"""`glle.compare`: compare maps of one data set in this process, and say which map to show."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle.inputs import set_blocks_apart
from glle.progress import watched
from glle.reading import ColumnOptions, DataPoints, read_points, table_options
from glle.table import map_frame, map_table, table_html, table_text
from glle_engine.audit.candidates import candidates_of, default_candidates
from glle_engine.audit.choice import QUESTIONS, Choices
from glle_engine.audit.comparison import compare_maps
from glle_engine.audit.sources import checked_coordinates
from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.base.parameters import seed_of, with_keywords
from glle_engine.methods import method as method_of
from glle_engine.metrics.registry import SCORES, default_scores, score

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from glle_engine.audit.candidates import Candidate
    from glle_engine.audit.choice import MapFacts
    from glle_engine.audit.comparison import Compared
    from glle_engine.audit.result import Audit
    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import Metric, Standardize
    from glle_engine.base.texts import Note

PANEL_INCHES = 3.2  # width and height of each map in a plot of all maps
PANELS_PER_ROW = 4  # number of maps in a row of a plot of all maps


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several maps of one data set, with an answer to which map to show; `print` shows the answer.

    Attributes
    ----------
    choices : Choices
        The answers: at most one sentence for each of the questions which map to show for neighbors, layout and groups.
    audits : dict of str to Audit
        Audits by label of the map. The audit of a map that is clearly worse than others for all three is preliminary.
    facts : dict of str to MapFacts
        The numbers on which the answers rest, by label of the map.
    embeddings : dict of str to (n, p) float64
        Coordinates by label of the map.
    scores : dict of str to dict of str to float
        Scores by label of the map and name of the score.
    problems : dict of str to list of GlleError
        Errors by label of the map, if its method or one of its scores failed.
    seconds : dict of str to float
        Time of each map with its audit, by label of the map.
    labels : (n,) array or None
        Labels of the points.
    notes : tuple of Note
        How a table was read, and whether few features determine the distances.

    """

    choices: Choices = field(default_factory=Choices)
    audits: dict[str, Audit] = field(default_factory=dict)
    facts: dict[str, MapFacts] = field(default_factory=dict)
    embeddings: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    problems: dict[str, list[GlleError]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    labels: NDArray[Any] | None = None
    notes: tuple[Note, ...] = ()

    @property
    def best(self) -> dict[str, str | None]:
        """Label of the map to show for each question, "neighbors", "layout" and "groups"; None if no map will do."""
        return self.choices.best

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences that answer which map to show; empty if the maps were not audited."""
        return self.choices.sentences

    def __str__(self) -> str:
        return "\n".join(self.sentences) if self.sentences else repr(self)

    def __repr__(self) -> str:
        return "\n".join([*self.sentences, table_text(self._table()), *self._below()])

    def _repr_html_(self) -> str:
        """Return the sentences and a table of the maps, for notebooks."""
        return table_html(self._table(), self.sentences, self._below())

    def frame(self) -> Any:
        """Return a pandas.DataFrame with a row for each map; maps that failed have a row with the `problem`.

        Raises
        ------
        ImportError
            Without pandas.

        """
        return map_frame(self._rows(), self.best)

    def plot(self, labels: ArrayLike | None = None) -> Figure:
        """Draw all maps as small panels, with the level of each audit in the title; return the figure.

        Points have the colors of `labels` (n,), by default of the labels of the comparison. Islands, groups of points
        that the map isolates from the other points, are outlined.

        Raises
        ------
        ImportError
            Without matplotlib.

        """
        from matplotlib.figure import Figure  # noqa: PLC0415 # an optional package

        from glle_engine.base.pictures.plotting import plot  # noqa: PLC0415 # loaded when something is drawn

        count = max(len(self.embeddings), 1)
        columns = min(PANELS_PER_ROW, count)
        lines = math.ceil(count / columns)
        figure = Figure(figsize=(PANEL_INCHES * columns, PANEL_INCHES * lines), layout="constrained")
        colors = self.labels if labels is None else labels
        for number, (label, Y) in enumerate(self.embeddings.items(), start=1):
            axes = figure.add_subplot(lines, columns, number)
            plot(self.audits.get(label, Y), colors, ax=axes)
            if (legend := axes.get_legend()) is not None and number < count:
                legend.remove()
            best = [question for question in QUESTIONS if self.best[question] == label]
            level = f" ({self.audits[label].level})" if label in self.audits else ""
            axes.set_title(f"{label}{level}" + (f"\nbest for {', '.join(best)}" if best else ""), fontsize="small")
        return figure

    def _rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each map, including maps that failed, as `map_frame` and `map_table` take them."""
        rows = []
        for label in dict.fromkeys([*self.embeddings, *self.problems]):
            audit, facts = self.audits.get(label), self.facts.get(label)
            rows.append(
                {
                    "label": label,
                    "level": facts and facts.level,
                    "is_preliminary": facts and not facts.is_complete,
                    "facts": facts and facts.numbers(),
                    "scores": self.scores.get(label),
                    "remains": audit and audit.remains,
                    "seconds": {"all": self.seconds[label]} if label in self.seconds else None,
                    "verdict": audit and audit.verdict,
                    "problem": " ".join(map(str, self.problems.get(label, ()))) or None,
                }
            )
        return rows

    def _table(self) -> list[list[str]]:
        return map_table([row for row in self._rows() if row["label"] in self.embeddings])

    def _below(self) -> list[str]:
        failures = [f"{label}: {error}" for label, errors in self.problems.items() for error in errors]
        return [*failures, *(note.message for note in self.notes)]


@with_keywords(ColumnOptions)
def compare(
    X: Any,
    methods: Any = None,
    *,
    labels: ArrayLike | str | None = None,
    blocks: ArrayLike | str | None = None,
    standardize: Standardize | None = None,
    metric: Metric | None = None,
    truth: ArrayLike | None = None,
    audit: bool = True,
    scores: Sequence[str] | None = None,
    score_neighbors: int | Literal["auto"] | None = "auto",
    seed: int = 0,
    random_state: Any = None,
    threads: int | None = None,
    verbose: bool | None = None,
    on_progress: OnProgress | None = None,
    **options: Unpack[ColumnOptions],
) -> Comparison:
    """Compare maps of the data by several methods, and say which map to show for neighbors, layout and groups.

    All methods are audited on the same random halves of the data, so that differences between methods are paired. The
    audit of a method that is clearly worse than others for all three stops after two pairs of halves.

    Parameters
    ----------
    X
        The data (n, d), or any data of `fit`.
    methods
        The candidates, as a list of names, pairs (name, parameters), dictionaries with `method`, `parameters` and
        `label`, functions of points (m, d) to coordinates (m, p), or estimators. Or a dictionary whose keys are labels;
        its values may also be coordinates (n, p), a posterior, a draw or an embedding. By default PCA, t-SNE and UMAP
        with several numbers of neighbors, Isomap, GLLE and PaCMAP, as far as they are installed.
    labels, truth
        Class (n,) of the points, or the name of a column, and true coordinates (n, q), for scores and plots.
    blocks
        Subject, series or replicate of each point, or the name of the column. All points of a block are in the same
        half of the data.
    standardize, metric
        Standardization and metric of the data, as for `audit`. All maps are judged by the same distances.
    audit
        False to compute only the scores, which need one map by each method; no map is chosen then.
    scores
        Names of scores. None for all fast scores; those that need `labels` or `truth` only if you pass them.
    score_neighbors
        Number of neighbors for the scores. "auto" or None means 10, or fewer if there are less than 21 points.
    seed, random_state
        Seed of the random halves of the data, by either name.
    threads
        Number of threads, by default the number of processors. The results do not depend on the number of threads.
    verbose
        Whether to show a line of progress on stderr after two seconds. None: in terminals and notebooks.
    on_progress
        Called with (maps done, all, title of a map); its exceptions end the comparison.
    options
        Options of a table, as for `fit`; scores use its labels.

    Raises
    ------
    ValueError
        If two candidates have the same label.
    InvalidParameterError
        If a candidate is not a method.

    Examples
    --------
    >>> import glle
    >>> comparison = glle.compare(glle.datasets.make("swiss_roll", 200, seed=0).X, ["pca", "isomap"])
    >>> sorted(comparison.best)
    ['groups', 'layout', 'neighbors']

    """
    of_table, _ = table_options(options, compare.__kwdefaults__ or {})
    blocks, of_table = set_blocks_apart(X, blocks, {**of_table, "labels": labels})
    data = read_points(X, of_table)
    points = data.X
    scored = Scored(points, data.labels, data.rows(truth, "the truth"), score_neighbors)
    candidates = default_candidates(*np.shape(points)) if methods is None else candidates_of(methods)
    making = _Making(Comparison(labels=data.labels), scored, scored.names(scores))
    if not audit:
        with watched("compare", verbose, on_progress) as report:
            for done, candidate in enumerate(candidates):
                report(done, len(candidates), candidate.title)
                making.embed(candidate)
            report(len(candidates), len(candidates), "")
        return making.result(data)
    with watched("compare", verbose, on_progress) as report:
        states = compare_maps(
            points,
            candidates,
            standardize=standardize,
            metric=metric,
            blocks=data.column(blocks) if isinstance(blocks, str) else data.rows(blocks, "the blocks"),
            ids=data.ids,
            id_names=data.options.get("id", ()),
            names=data.names,
            threads=threads,
            on_progress=report,
            seed=seed_of(seed, random_state),
        )
        for compared, choices in deque(states, maxlen=1):
            for each in compared:
                making.add_audited(each)
            making.comparison = replace(making.comparison, choices=choices)
    return making.result(data)


@dataclass(eq=False)
class _Making:
    """A comparison to which maps are added one after the other; each map gets the scores that `names` lists.

    `notes` (code: note) collects notes that hold for all maps, so that the finished comparison shows each once. At
    present there is one such note, on features with unequal scales.
    """

    comparison: Comparison
    scored: Scored
    names: list[str]
    notes: dict[str, Note] = field(default_factory=dict)

    def result(self, points: DataPoints) -> Comparison:
        """Return the finished comparison, with notes on how the data were read and on the scales of the features."""
        return replace(self.comparison, notes=points.all_notes(self.notes.values()))

    def embed(self, candidate: Candidate) -> None:
        """Compute the map of a candidate without an audit, and add the map with its scores; or add the error."""
        try:
            Y, notes = _coordinates(self.scored.X, candidate, self.scored.labels)
        except GlleError as error:
            self.comparison.problems[candidate.label] = [error]
        else:
            self._add(candidate.label, Y, notes)

    def add_audited(self, compared: Compared) -> None:
        """Add an audited map with its scores, or the problem of a candidate that failed."""
        label, comparison = compared.candidate.label, self.comparison
        if compared.audit is None or compared.facts is None:
            assert compared.problem is not None
            comparison.problems[label] = [compared.problem]
            return
        comparison.audits[label], comparison.facts[label] = compared.audit, compared.facts
        comparison.seconds[label] = compared.seconds
        self._add(label, compared.audit.embedding, compared.audit.notes)

    def _add(self, label: str, Y: NDArray[np.float64], notes: Iterable[Note]) -> None:
        self.notes |= {note.code: note for note in notes if note.code == "unequal-feature-scales"}
        self.comparison.embeddings[label] = Y
        row = self.comparison.scores[label] = dict[str, float]()
        for name in self.names:
            try:
                row |= score(self.scored.X, Y, [name], **self.scored.options())
            except GlleError as error:
                self.comparison.problems.setdefault(label, []).append(error)


def _coordinates(
    X: ArrayLike, candidate: Candidate, labels: ArrayLike | None
) -> tuple[NDArray[np.float64], tuple[Note, ...]]:
    """Return the coordinates (n, p) of a candidate's map of X, and the notes on this map.

    Only a method that is given by its name has notes; a function, an estimator or given coordinates have none.
    """
    if candidate.name is not None:
        chosen = method_of(candidate.method)
        spec = chosen.spec.from_dict(candidate.parameters)
        embedding = chosen.embed(X, spec, labels=classes_of(labels) if chosen.needs_labels(spec) else None)
        return embedding.Y, embedding.notes
    function = getattr(candidate.method, "fit_transform", candidate.method)
    Y = candidate.Y if function is None else function(X)
    return checked_coordinates(Y, np.shape(X)[0]), ()


def classes_of(labels: ArrayLike | None) -> ArrayLike | None:
    """Return labels as numbers, for supervised methods: each word becomes its rank among the sorted distinct words."""
    if labels is None or np.asarray(labels).dtype.kind in "iubf":
        return labels
    return np.unique(np.asarray(labels).astype(str), return_inverse=True)[1]


@dataclass(frozen=True, eq=False)
class Scored:
    """What scores need in addition to the embedding: data X (n, d), labels, true coordinates, number of neighbors."""

    X: Any
    labels: Any
    truth: Any
    neighbors: int | Literal["auto"] | None

    def names(self, scores: Sequence[str] | None) -> list[str]:
        """Return the names of the scores to compute: `scores`, or for None all fast scores.

        Without labels, the fast scores that need labels are left out; likewise for true coordinates.

        Raises `InvalidParameterError` if `scores` is not a list of names.
        """
        if isinstance(scores, str) or not isinstance(scores, Iterable | None):
            raise InvalidParameterError(
                f"scores={scores!r:.60} is not a list of names.",
                remedy=f"Give a list of names, of {', '.join(SCORES)}.",
            )
        if scores is not None:
            return [*scores]
        return default_scores({name for name in ("labels", "truth") if getattr(self, name) is not None})

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `glle_engine.metrics.registry.score`: number of neighbors, labels, truth."""
        n = np.shape(self.X)[0] if np.ndim(self.X) else 0
        k = max(1, min(10, (n - 1) // 2)) if self.neighbors in {None, "auto"} else self.neighbors
        return {"score_neighbors": k, "labels": self.labels, "truth": self.truth}
