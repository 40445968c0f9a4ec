"""Which of several maps to show, for each of three questions: all rules, with every threshold.

The questions are who is near whom (`neighbors`), distances across the map (`layout`), and groups (`groups`).

- Neighbors: the map that keeps the most neighbors. Neighbors in the data are the nearest points by the first ten
  principal components.
- Layout: the method whose maps of halves order distances most as the data do. The score is the mean of two rank
  correlations: with Euclidean distances in the data, and with distances along the data (shortest paths over nearest
  neighbors).
- Groups: the map with the most points on trusted islands (separate clumps of points that other samples show, too).
  Among maps that are as good, it is the one with the most trusted islands, because a map that lays groups onto each
  other has fewer. No map is named if none has three trusted islands.

A map is never named because it is stable: a folded map can be the most stable one. All maps are compared on the same
random halves of the data, so that differences are paired. If several maps are as good as the best one, PCA or t-SNE is
named if it is among them, and else the best one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from glle_engine.audit.agreement import standard_error
from glle_engine.base.results import brief
from glle_engine.base.texts import Text, Way, listed, to_json
from glle_engine.reliability.thresholds import MIN_POINTS_FOR_WEAK_STRUCTURE, MIN_STANDARD_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from glle_engine.audit.statement import Asks, Level

Question = Literal["neighbors", "layout", "groups"]
QUESTIONS: tuple[Question, ...] = ("neighbors", "layout", "groups")

SMALL_DIFFERENCE = 0.01  # maps whose scores differ by less are as good as each other, however certain the difference
LARGE_DIFFERENCE = 0.03  # maps whose scores differ by more are not as good, however uncertain the difference
# If the best map keeps less than this share of the data's neighbors, no map is named for the question of neighbors.
# The share is corrected for chance: random positions keep 0, and a map with all neighbors of the data keeps 1.
MIN_KEPT_BEYOND_CHANCE = 0.05
MIN_LAYOUT_CORRELATION = 0.3  # no map is named for its layout if the best mean rank correlation is lower
MIN_TRUSTED_ISLANDS = 3  # no map is named for groups unless at least one map has this many trusted islands
# The audit of a map stops after two pairs of halves if, for each question, its score is below the best score by more
# than this. For the layout, the difference must also exceed 2.5 standard errors.
BEHIND = 0.05
# If several maps are as good as the best one, the first of these methods among them is named, or else the best map.
PREFERRED_METHODS = ("pca", "t-sne")
# What a user can have to do before reading any map (`Statement.asks` of an audit), with the sentence that says so. The
# sentence is shown if all audits ask for the same thing; audits of level "no" (do not rely on the map) do not count.
FIRST: dict[Asks, Text] = {
    "standardize": Text("Standardize the features first: one of them decides what these maps show."),
    "blocks": Text(
        f"Name the subject or series of each row first, with {Way('blocks')}: halves of these rows are no independent "
        "samples."
    ),
}
MAX_NAMED_MAPS = 3  # beside the map to show, a sentence names at most this many other maps that are as good


@dataclass(frozen=True, eq=False, kw_only=True)
class MapFacts:
    """What is known about one map of a comparison, as input for `choose`.

    Attributes
    ----------
    label : str
    title : str
        Name in sentences, such as "UMAP with 50 neighbors".
    method : str or None
        Name of the method in the registry.
    level : {"trust", "partly", "no", "unknown"}
        Level of the map's audit.
    beyond_chance : bool or None
        Whether the data have structure and the map shows some of it; None if this cannot be decided.
    kept : float
        Share of each point's nearest neighbors in the data that are also its nearest in the map, corrected for chance:
        0 for random positions, 1 for all neighbors. Neighbors in the data are found by the first ten principal
        components.
    kept_in_halves : (m,) float64
        `kept` of each map that the method makes of a half of the data. This and the other arrays of halves are empty
        for coordinates without a method.
    layout : (m, 2) float64
        Rank correlations of distances in each map of a half with Euclidean distances in the data, and with distances
        along the data (shortest paths over nearest neighbors).
    islands : int
        Islands of the map.
    trusted : int
        Islands that can be trusted.
    grouped : float
        Share of the points on trusted islands.
    in_groups : float
        Share of the points on islands that are isolated in the data. It is an upper limit of `grouped`.
    grouped_in_halves : (m,) float64
        For each map of a half, the share of the points on those trusted islands that are isolated in it.
    is_complete : bool
        Whether the map's audit is complete.
    asks : {"method", "standardize", "blocks"} or None
        What the map's audit asks for before the map is read (`Statement.asks`).

    """

    label: str
    title: str
    method: str | None
    level: Level
    beyond_chance: bool | None
    kept: float
    kept_in_halves: NDArray[np.float64]
    layout: NDArray[np.float64]
    islands: int
    trusted: int
    grouped: float
    in_groups: float
    grouped_in_halves: NDArray[np.float64]
    is_complete: bool = True
    asks: Asks | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as a JSON-able dictionary."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the facts of a dictionary that `to_dict` returned."""
        arrays = {name: np.array(value[name]) for name in ("kept_in_halves", "grouped_in_halves")}
        return cls(**{**value, **arrays, "layout": np.array(value["layout"]).reshape(-1, 2)})

    def numbers(self) -> dict[str, float | None]:
        """Return the numbers that decide the choice, by name.

        `straight` and `along` are the means of the two rank correlations in `layout`: with Euclidean distances in the
        data, and with distances along the data. They are None without maps of halves of the data.
        """
        straight, along = self.layout.mean(axis=0).tolist() if len(self.layout) else (None, None)
        groups = {name: getattr(self, name) for name in ("islands", "trusted", "grouped")}
        return {"kept": self.kept, "straight": straight, "along": along, **groups}

    @property
    def fidelity(self) -> float | None:
        """Mean rank correlation of distances in maps of halves of the data with distances in the data.

        None for coordinates without a method, which have no maps of halves.
        """
        return float(self.layout.mean()) if len(self.layout) else None


@dataclass(frozen=True)
class Choice:
    """Which map to show for one of the three questions.

    Attributes
    ----------
    question : {"neighbors", "layout", "groups"}
    best : str or None
        Label of the map to show; None if no map answers the question.
    as_good : tuple of str
        Labels of the other maps that are as good.
    sentence : str
        The answer for the user.

    """

    question: Question
    best: str | None
    as_good: tuple[str, ...]
    sentence: str

    __repr__ = brief


@dataclass(frozen=True)
class _Scores:
    """How to score a map for one question.

    `value` returns the score of the map, and `halves` the scores (m,) of the method's maps of m halves of the data. If
    the best `value` of all maps is below `min_score`, no map is named for the question.
    """

    value: Callable[[MapFacts], float]
    halves: Callable[[MapFacts], NDArray[np.float64]]
    min_score: float = 0.0


_OF_QUESTION: dict[Question, _Scores] = {
    "neighbors": _Scores(lambda facts: facts.kept, lambda facts: facts.kept_in_halves, MIN_KEPT_BEYOND_CHANCE),
    "layout": _Scores(
        lambda facts: facts.fidelity or 0.0, lambda facts: facts.layout.mean(axis=1), MIN_LAYOUT_CORRELATION
    ),
    "groups": _Scores(lambda facts: facts.grouped, lambda facts: facts.grouped_in_halves),
}


@dataclass(frozen=True)
class Choices:
    """Which map to show for each of three questions: who is near whom, distances across the map, and groups.

    Attributes
    ----------
    answers : tuple of Choice
        The answer to each question; empty if there are no maps, or if none of them shows anything.
    nothing : str
        The sentence that says that no map shows anything; otherwise an empty text.
    asks : {"standardize", "blocks"} or None
        What the user has to do before reading any map (`Statement.asks`), if the audits of all maps ask for the same.

    """

    answers: tuple[Choice, ...] = ()
    nothing: str = ""
    asks: Asks | None = None

    __repr__ = brief

    @property
    def best(self) -> dict[str, str | None]:
        """Mapping from each question to the label of the map to show, or to None if no map answers the question."""
        best_maps = {answer.question: answer.best for answer in self.answers}
        return {question: best_maps.get(question) for question in QUESTIONS}

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences for the user: what to do first, if anything, and then the answer to each question.

        If no map shows anything, there is one sentence that says so.
        """
        if self.nothing:
            return (self.nothing,)
        first = FIRST.get(self.asks) if self.asks else None
        return (*([first] if first else []), *(answer.sentence for answer in self.answers))

    def to_dict(self) -> dict[str, Any]:
        """Return `best`, `as_good` by question, `asks`, `sentences` and `sentence_parts` as a JSON-able dictionary."""
        labels = {answer.question: list(answer.as_good) for answer in self.answers}
        as_good = {question: labels.get(question, []) for question in QUESTIONS}
        return {
            "best": self.best,
            "as_good": as_good,
            "asks": self.asks,
            "sentences": [str(sentence) for sentence in self.sentences],
            "sentence_parts": [to_json(sentence) for sentence in self.sentences],
        }


def choose(maps: Sequence[MapFacts], n: int) -> Choices:
    """Return which of several maps of n points to show for each question; maps of level "no" are never named."""
    if not maps:
        return Choices()
    if all(facts.beyond_chance is False for facts in maps):
        few = f" {n} points are too few to see any but a strong one." if n < MIN_POINTS_FOR_WEAK_STRUCTURE else ""
        return Choices(nothing=f"Show no map: we found no structure in these data.{few}")
    relied = [facts for facts in maps if facts.level != "no"]
    if not relied:
        return Choices(nothing="Show no map: none of these shows what another sample of the data would show, too.")
    asks = {facts.asks for facts in relied}
    shared = asks.pop() if len(asks) == 1 and asks <= FIRST.keys() else None
    return Choices((_neighbors(relied), _layout(relied), _groups(relied)), asks=shared)


def behind(maps: Sequence[MapFacts]) -> set[str]:
    """Return the labels of the maps that need no complete audit, because they are clearly worse for all questions.

    If the data have no structure, these are all maps.
    """
    if all(facts.beyond_chance is False for facts in maps):
        return {facts.label for facts in maps}
    eligible = [facts for facts in maps if facts.level != "no"]
    if not eligible:
        return set()
    labels = set()
    most_grouped = max(facts.grouped for facts in eligible)
    for facts in maps:
        is_left = facts.in_groups == 0 or facts.in_groups < most_grouped - BEHIND
        for question in ("neighbors", "layout"):
            scores = _OF_QUESTION[question]
            leader = max(eligible, key=scores.value)
            is_behind = scores.value(leader) - scores.value(facts) > BEHIND
            is_left &= is_behind and (question == "neighbors" or not _is_within_error(facts, leader, question))
        if is_left:
            labels.add(facts.label)
    return labels


def _neighbors(maps: Sequence[MapFacts]) -> Choice:
    best, as_good = _winner(maps, "neighbors")
    if best is None:
        return Choice("neighbors", None, (), "No map keeps who is near whom.")
    return Choice("neighbors", *_labels(best, as_good), f"To see who is near whom, show {_named(best, as_good)}.")


def _layout(maps: Sequence[MapFacts]) -> Choice:
    best, as_good = _winner([facts for facts in maps if len(facts.layout)], "layout")
    if best is None:
        return Choice("layout", None, (), "No map orders distances as the data do.")
    return Choice("layout", *_labels(best, as_good), f"For distances across the map, show {_named(best, as_good)}.")


def _groups(maps: Sequence[MapFacts]) -> Choice:
    several = [facts for facts in maps if facts.trusted]
    trusted = max((facts.trusted for facts in maps), default=0)
    if 1 < trusted < MIN_TRUSTED_ISLANDS:
        shown = min((facts for facts in several if facts.trusted == trusted), key=_simplicity)
        words = f"No map separates more than {trusted} groups that can be trusted; {shown.title} shows {trusted}."
        return Choice("groups", None, (), words)
    if trusted < MIN_TRUSTED_ISLANDS:
        shown = max(maps, key=lambda facts: facts.islands)
        changing = shown.islands - shown.trusted
        which = f"{changing} of the {shown.islands}" if shown.trusted else f"the {shown.islands}"
        change = f"; {which} islands of {shown.title} change with the sample" if changing > 1 else ""
        return Choice("groups", None, (), f"No map separates groups that can be trusted{change}.")
    best, as_good = _winner(several, "groups")
    assert best is not None
    max_trusted = max(facts.trusted for facts in (best, *as_good))
    best, *as_good = sorted((facts for facts in (best, *as_good) if facts.trusted == max_trusted), key=_simplicity)
    share = f"{best.trusted} islands that can be trusted hold {best.grouped:.0%} of the points"
    return Choice("groups", *_labels(best, as_good), f"To see groups, show {_named(best, as_good)}: {share}.")


def _winner(maps: Sequence[MapFacts], question: Question) -> tuple[MapFacts | None, list[MapFacts]]:
    """Return the map to show, and the others that are as good; None and no others if the best score is too low."""
    scores = _OF_QUESTION[question]
    leader = max(maps, key=scores.value, default=None)
    if leader is None or scores.value(leader) < scores.min_score:
        return None, []
    as_good = [facts for facts in maps if facts is leader or _is_as_good(facts, leader, question)]
    best = min(as_good, key=lambda facts: (_simplicity(facts), facts is not leader))
    return best, [facts for facts in as_good if facts is not best]


def _is_as_good(facts: MapFacts, leader: MapFacts, question: Question) -> bool:
    """Return whether a map is as good as the leader, the map with the best score for a question.

    Its score is at most .01 below the leader's score, or at most .03 below and within 2.5 standard errors.
    """
    scores = _OF_QUESTION[question]
    difference = scores.value(leader) - scores.value(facts)
    if difference <= SMALL_DIFFERENCE:
        return True
    return difference <= LARGE_DIFFERENCE and _is_within_error(facts, leader, question)


def _is_within_error(facts: MapFacts, leader: MapFacts, question: Question) -> bool:
    """Return whether the leader's score exceeds a map's score by at most 2.5 standard errors of the difference.

    Scores are compared over pairs of halves of the data. Returns False if a map has no maps of halves.
    """
    if not (len(facts.layout) and len(leader.layout)):
        return False
    scores = _OF_QUESTION[question]
    mine, best = scores.halves(facts), scores.halves(leader)
    count = min(len(mine), len(best))
    pairs = (best[:count] - mine[:count]).reshape(-1, 2).mean(axis=1)
    return float(pairs.mean()) <= MIN_STANDARD_ERRORS * standard_error(pairs)


def _simplicity(facts: MapFacts) -> int:
    return PREFERRED_METHODS.index(facts.method) if facts.method in PREFERRED_METHODS else len(PREFERRED_METHODS)


def _labels(best: MapFacts, as_good: Sequence[MapFacts]) -> tuple[str, tuple[str, ...]]:
    return best.label, tuple(facts.label for facts in as_good)


def _named(best: MapFacts, as_good: Sequence[MapFacts]) -> str:
    """Return the title of the best map, with the titles of the maps that are as good in parentheses."""
    titles = [facts.title for facts in as_good[:MAX_NAMED_MAPS]]
    if len(as_good) > MAX_NAMED_MAPS:
        titles.append(f"{len(as_good) - MAX_NAMED_MAPS} more")
    if not titles:
        return best.title
    are = "is" if len(titles) == 1 else "are"
    return f"{best.title} ({listed(titles)} {are} as good)"
