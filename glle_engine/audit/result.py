"""Result of an audit, and its verdict: sentences on a picture, for a reader who sees nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np  # noqa: TC002 # the models of JSON read the hints
from scipy.sparse import csr_array  # noqa: TC002 # the same

from glle_engine.audit.chance import Chance  # noqa: TC001 # the same
from glle_engine.base.pictures.points import count_apart
from glle_engine.base.results import Note, PointResult, brief
from glle_engine.reliability.alignment import Regions  # noqa: TC001 # the same

if TYPE_CHECKING:
    from numpy.typing import NDArray


HOLDS, PARTLY = 0.6, 0.3  # share that remains, of the words of the verdict
NAMED = 5  # groups in a sentence


@dataclass(frozen=True, eq=False)
class Ranking:
    """How far the spread ranks the points by their certainty.

    Attributes
    ----------
    level : {"high", "moderate", "low"}
    expected : float in [0, 1]
        Expected rank correlation with the spread over new samples: the smallest one of the correlations of the spread
        over halves with those over quarters and over eight tenths of the data, and of the reliability of the order by
        two halves of the data, each alone.

    """

    level: Literal["high", "moderate", "low"]
    expected: float


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of labeled points in the pictures of other samples.

    Attributes
    ----------
    names : (g,) array
        The labels, ascending.
    apart : (g, g) float64
        Share of pictures in which at least 90 % of the points of two groups lie nearer to their own group's center than
        to the other's.
    member_probability : (n,) float64
        Share of pictures in which most of a point's neighbors are of its group.
    classes : (n,) int64
        Index of each point's group.

    """

    names: NDArray[Any]
    apart: NDArray[np.float64]
    member_probability: NDArray[np.float64]
    classes: NDArray[np.int64]

    __repr__ = brief

    def statement(self) -> str:
        """Return a sentence on which groups stay apart, or an empty one for a single group."""
        count, apart_from = len(self.names), count_apart(self.apart)
        if count < 2:
            return ""
        if (apart_from == count - 1).all():
            return "Both groups stay apart." if count == 2 else f"All {count} groups stay apart from each other."
        if count == 2:
            return "The two groups do not stay apart."
        pairs = f"{apart_from.sum() // 2} of {count * (count - 1) // 2} pairs of groups stay apart"
        mixed = [str(name) for name in self.names[2 * apart_from < count - 1]]
        if not 0 < len(mixed) <= min(NAMED, count - 1):
            return f"{pairs}."
        stay = f"group {mixed[0]} stays" if len(mixed) == 1 else f"groups {', '.join(mixed[:-1])} and {mixed[-1]} stay"
        return f"{pairs}; {stay} apart from fewer than half of the others."

    def to_dict(self) -> dict[str, Any]:
        """Return `names` and `apart` as a JSON-able dictionary."""
        return {"names": self.names.tolist(), "apart": self.apart.tolist()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(PointResult):
    """What the data support of an embedding of n points.

    Attributes
    ----------
    verdict : str
        Some sentences about the picture.
    beyond_chance : bool or None
        Whether the data have relations among their features, and the map keeps more of their neighbors than random
        places do; None if fewer than two features vary.
    remains : float in [0, 1] or None
        R^2 of the pictures of two separate halves of the data: what another sample of half as many points would show of
        it. None for coordinates alone, as all that follows.
    remains_error : float or None
        Its standard error over pairs of halves of this sample; other samples differ more.
    dimension : int or None
        Coordinates that two samples share when one more than the picture's is computed, at least; None if the method
        has a fixed number.
    embedding : (n, p) float64
    spread : (n,) float64 or None
        Root of the trace of a point's covariance over samples, in units of the embedding.
    stability : (n,) float64 in [0, 1] or None
        Mean probability of a point's neighbors in the picture to be its neighbors in that of another sample.
    regions : dict of Regions
        "mean": for the mean place of each point over samples; "new sample": for its place in the picture of another
        sample. Each for the levels .5 and .9, which hold on average over laws of data, and for nine of ten laws within
        .10 of .9 (docs/explanation/believe.md).
    neighbors : (n, n) csr_array or None
        Probability that j is among the neighbors of i in the picture of another sample.
    groups : Groups or None
        Of the labels.
    ranking : Ranking or None
        None also where the picture is not beyond chance: which of its points move least is of no use then.
    chance : Chance or None
    pairs : int
        Pairs of separate halves.
    notes : tuple of Note

    """

    verdict: str
    beyond_chance: bool | None
    embedding: NDArray[np.float64]
    remains: float | None = None
    remains_error: float | None = None
    dimension: int | None = None
    spread: NDArray[np.float64] | None = None
    stability: NDArray[np.float64] | None = None
    regions: dict[str, Regions] = field(default_factory=dict)
    neighbors: csr_array | None = None
    groups: Groups | None = None
    ranking: Ranking | None = None
    chance: Chance | None = None
    pairs: int = 0
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def __str__(self) -> str:
        return self.verdict

    @property
    def p_value(self) -> NDArray[np.float64] | None:
        """P-value (n,) of each point's neighborhood against chance."""
        return None if self.chance is None else self.chance.p_value

    @property
    def is_point_beyond(self) -> NDArray[np.bool_] | None:
        """Points (n,) beyond chance, at a false-discovery rate of 10 %."""
        return None if self.chance is None else self.chance.is_point_beyond

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with a row for each point that there are.

        `embedding`, `p_value`, `is_point_beyond`, `spread`, `stability`, `member_probability`, and `half_axes` of the
        regions.
        """
        arrays = {
            "embedding": self.embedding,
            "p_value": self.p_value,
            "is_point_beyond": self.is_point_beyond,
            "spread": self.spread,
            "stability": self.stability,
            "member_probability": None if self.groups is None else self.groups.member_probability,
            "half_axes": self.regions["mean"].half_axes if self.regions else None,
        }
        return {name: values for name, values in arrays.items() if values is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as a JSON-able dictionary."""
        return {
            "verdict": self.verdict,
            "beyond_chance": self.beyond_chance,
            "remains": self.remains,
            "remains_error": self.remains_error,
            "dimension": self.dimension,
            "ranking": None if self.ranking is None else asdict(self.ranking),
            "groups": None if self.groups is None else self.groups.to_dict(),
            "pairs": self.pairs,
            "regions": {name: regions.to_dict() for name, regions in self.regions.items()},
            "notes": [asdict(note) for note in self.notes],
        }


def verdict(
    beyond: bool | None,  # noqa: FBT001 # three answers
    relations: float | None,
    kept: float,
    name: str,
    chance: Chance | None,
    remains: float | None = None,
    hidden: int | None = None,
    p: int = 2,
    is_compared: bool = True,  # noqa: FBT001, FBT002 # a stage
) -> str:
    """Return the answers to the first two questions, and what not to read from the picture.

    `relations` are those of `find_relations`. `remains` is None for coordinates alone, which are compared with those
    by `name` of data without structure. The data fill `hidden` dimensions, more than the picture's p. Without
    `is_compared` the picture has not been compared with chance yet, and is not to be believed.
    """
    if relations is None:
        first = "Whether there is structure cannot be decided, because fewer than two features vary."
    elif relations <= 0:
        return (
            "No relation among the features is more than chance: these points are as far from each other as those of "
            "data whose features are unrelated."
        )
    elif not beyond:
        first = f"The data have structure, but this picture does not show it: it keeps {kept:.0%} of the neighbors."
    elif chance is None:
        first = f"There is structure, and the picture keeps {kept:.0%} of the neighbors."
    else:
        by = "chance" if remains is not None else f"{name} of data without structure"
        but = "" if chance.has_gain or remains is None else ", but the neighborhoods of the picture do not show it"
        shares = f"{chance.preserved.mean():.0%} of the neighbors are kept, against {chance.expected.mean():.0%}"
        first = f"There is structure{but}: {shares} by {by}."
    sentences = [first]
    if beyond is not False and remains is not None:
        sentences.append(_on_samples(beyond and is_compared, chance is None or chance.has_gain, remains, name))
    if hidden is not None:
        sentences.append(f"The data fill {hidden} dimensions that two samples share; this picture has {p}.")
    return " ".join(sentences)


def _on_samples(beyond: bool | None, has_gain: bool, remains: float, name: str) -> str:  # noqa: FBT001
    """Return what of the picture another sample would show."""
    share = f"another sample of half as many points would show {remains:.0%} of it"
    if remains < PARTLY:
        return f"Do not believe the picture by {name}: {share}."
    if not has_gain or not beyond:
        subject = "The picture is" if remains >= HOLDS else "Parts of the picture are"
        return f"{subject} stable: {share}.{'' if has_gain else ' But do not read neighbors from it.'}"
    if remains < HOLDS:
        return f"Believe parts of the picture: {share}. Read the most stable points, not the shape."
    return f"Believe the picture: {share}."
