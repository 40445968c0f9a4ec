"""Result of an audit, and its verdict: sentences about a map, for a reader who sees nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np  # noqa: TC002 # `service.schemas.derived` reads the type hints
from scipy.sparse import csr_array  # noqa: TC002 # for type hints that are read

from glle_engine.audit.answers import Answer, Disturbed  # noqa: TC001 # for type hints that are read
from glle_engine.audit.chance import Chance  # noqa: TC001 # for type hints that are read
from glle_engine.audit.groups import Groups  # noqa: TC001 # for type hints that are read
from glle_engine.audit.islands import Islands  # noqa: TC001 # for type hints that are read
from glle_engine.audit.statement import Level, Statement  # noqa: TC001 # for type hints that are read
from glle_engine.base.results import PointResult, brief
from glle_engine.base.texts import Line, Note  # noqa: TC001 # for type hints that are read
from glle_engine.reliability.alignment import Regions  # noqa: TC001 # for type hints that are read

if TYPE_CHECKING:
    from numpy.typing import NDArray


PAGE = "docs/explanation/believe.md"  # explains how verdicts are found
_POINT_ARRAYS = (
    "embedding", "island", "neighborhood", "stretch", "squeeze", "is_torn", "is_glued", "seam", "p_value",
    "is_point_beyond", "spread", "stability",
)  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(PointResult):
    """Result of an audit: which parts of an embedding of n points the data support.

    Attributes
    ----------
    verdict : str
        Up to three lines: what to read from the map (✓), what not (✗) or what to do first, and why.
    level : {"trust", "partly", "no", "unknown"}
        The verdict in one word. "unknown": coordinates alone, a preliminary audit, or data that cannot decide.
    statement : Statement
        Level and lines of the verdict, with the things that are trusted and distrusted.
    is_preliminary : bool
        Whether the audit goes on to embed more halves of the data.
    beyond_chance : bool or None
        Whether the data have relations among their features, and the map keeps more of their neighbors than random
        positions do; None if fewer than two features vary.
    embedding : (n, p) float64
    islands : Islands
        Which islands (separate clumps of points) the map has, and whether the data have them, too. If the method of the
        map is known, also whether other samples have them.
    disturbed : Disturbed
        Where the map tears or folds the data: `stretch` and `squeeze` of each point, and `seams`, the pairs of regions
        that are torn apart or laid onto each other.
    remains : float in [0, 1] or None
        How much of the map another sample of half as many points would show (R^2). We take the R^2 between the maps of
        two separate halves, or the R^2 between this map and the maps of the halves, whichever is smaller. This value
        and all that follow are None for coordinates alone, and for coordinates that the method did not make.
    remains_error : float or None
        Standard error of `remains` over pairs of halves of this sample. Other samples differ by more than that.
    arrangement : Answer or None
        How well the positions of the islands agree between samples; None for fewer than three islands.
    neighborhoods : Answer or None
        Share of neighbors that stay neighbors in another sample, corrected for the share of random points of the same
        island.
    shape : Answer or None
        How well the shapes of the islands agree between samples.
    neighborhood : (n,) float64 in [0, 1] or None
        Share of each point's neighbors that stay its neighbors in another sample, corrected as `neighborhoods`.
    dimension : int or None
        Number of coordinates that maps of two separate halves of the data share; the data have at least this dimension.
        The maps have one coordinate more than this map. None if the method cannot make such maps, because it has a
        fixed number of coordinates or starts at random.
    spread : (n,) float64 or None
        Root of the trace of a point's covariance over samples, in units of the embedding.
    stability : (n,) float64 in [0, 1] or None
        Mean probability that a point's neighbors in the map are its neighbors in the map of another sample, too.
    regions : dict of Regions
        "mean": regions for the mean position of each point over samples; "new sample": regions for the point's position
        in the map of another sample. Both have the levels .5 and .9, calibrated on pairs of halves that were held out.
        Empty for fewer than 4 pairs of halves, or fewer than p + 1.
    neighbors : (n, n) csr_array or None
        Entry (i, j) is the probability that j is among the neighbors of i in the map of another sample.
    groups : Groups or None
        Whether points with the same label form groups in the maps of other samples; None without labels.
    chance : Chance or None
        Comparison with maps of permuted data, with the p-values. None if it would say nothing, because the map has as
        many coordinates as the data have features, or because one feature has nearly all of the variance.
    pairs : int
        Number of pairs of separate halves that were embedded.
    rows : (r,) int or None
        Rows of the data of which halves were made: all, or a random sample of them; None without halves.
    notes : tuple of Note
        Warnings and further findings.

    """

    verdict: str
    level: Level
    statement: Statement
    beyond_chance: bool | None
    embedding: NDArray[np.float64]
    islands: Islands
    disturbed: Disturbed
    is_preliminary: bool = False
    remains: float | None = None
    remains_error: float | None = None
    arrangement: Answer | None = None
    neighborhoods: Answer | None = None
    shape: Answer | None = None
    neighborhood: NDArray[np.float64] | None = None
    dimension: int | None = None
    spread: NDArray[np.float64] | None = None
    stability: NDArray[np.float64] | None = None
    regions: dict[str, Regions] = field(default_factory=dict)
    neighbors: csr_array | None = None
    groups: Groups | None = None
    chance: Chance | None = None
    pairs: int = 0
    rows: NDArray[np.intp] | None = None
    notes: tuple[Note, ...] = ()

    __repr__ = brief

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.verdict, self.how, *(note.message for note in self.notes)]))

    @property
    def lines(self) -> tuple[Line, ...]:
        """The one to three lines of the verdict, each with its role: "read", "avoid", "first" or "why".

        The roles stand for what to read from the map, what not to read, what to do first, and the reasons.
        """
        return self.statement.lines

    @property
    def how(self) -> str:
        """Sentence for the user that says how the verdict was found; an empty text if no halves were embedded."""
        return f"Your data were halved {self.pairs} times and mapped again ({PAGE})." if self.pairs else ""

    @property
    def p_value(self) -> NDArray[np.float64] | None:
        """Probability (n,) that a map of permuted data keeps as many neighbors of a point as this map does.

        None without such maps (`chance` is None).
        """
        return None if self.chance is None else self.chance.p_value

    @property
    def is_point_beyond(self) -> NDArray[np.bool_] | None:
        """Whether this map keeps more neighbors of each point (n,) than maps of permuted data do.

        The false-discovery rate is 10 %. None without such maps (`chance` is None).
        """
        return None if self.chance is None else self.chance.is_point_beyond

    @property
    def stretch(self) -> NDArray[np.float64]:
        """For each point (n,), the mean distance in the map to the points that are its neighbors in other samples.

        1 is the usual distance of neighbors in the map; at larger values the map tears neighbors apart. Other samples
        are maps of random halves of the data, or the data themselves for coordinates alone.
        """
        return self.disturbed.stretch

    @property
    def squeeze(self) -> NDArray[np.float64]:
        """For each point (n,), the mean distance in other samples to the points that are its neighbors in the map.

        1 is the usual distance of neighbors in the other samples; at larger values the map squeezes points together.
        Other samples are maps of random halves of the data, or the data themselves for coordinates alone.
        """
        return self.disturbed.squeeze

    @property
    def is_torn(self) -> NDArray[np.bool_]:
        """Mask (n,) of the points that the map tears off: more than a tenth of a point's neighbors lie far away in it.

        The neighbors are those in maps of random halves of the data, or in the data themselves for coordinates alone.
        """
        return self.disturbed.is_torn

    @property
    def is_glued(self) -> NDArray[np.bool_]:
        """Whether the map puts each point (n,) beside points that are far from it in the data."""
        return self.disturbed.is_glued

    @property
    def seam(self) -> NDArray[np.int64]:
        """For each point (n,), j or -j if it lies on one or the other side of the tear or fold j; 0 for other points.

        Tear or fold j is `disturbed.seams[j - 1]`.
        """
        return self.disturbed.seam

    @property
    def island(self) -> NDArray[np.int64]:
        """Number (n,) of each point's island: 0 is the largest one, and -1 stands for no island."""
        return self.islands.of_points

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that have a row for each point, by name, without the ones that are None.

        The names are attributes of this class, `member_probability` (of `groups`), and `half_axes` (of `regions`).
        """
        arrays = {name: getattr(self, name) for name in _POINT_ARRAYS}
        arrays["member_probability"] = None if self.groups is None else self.groups.member_probability
        arrays["half_axes"] = self.regions["mean"].half_axes if self.regions else None
        return {name: values for name, values in arrays.items() if values is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as a JSON-able dictionary."""
        answers = {name: getattr(self, name) for name in ("arrangement", "neighborhoods", "shape", "groups")}
        return {
            "verdict": self.verdict,
            "level": self.level,
            "lines": [line.to_dict() for line in self.lines],
            "asks": self.statement.asks,
            "how": self.how,
            "is_preliminary": self.is_preliminary,
            "beyond_chance": self.beyond_chance,
            "remains": self.remains,
            "remains_error": self.remains_error,
            "islands": self.islands.to_dict(),
            **{name: None if answer is None else answer.to_dict() for name, answer in answers.items()},
            "tears": self.disturbed.tears.tolist(),
            "seams": [seam.to_dict() for seam in self.disturbed.seams],
            "dimension": self.dimension,
            "pairs": self.pairs,
            "regions": {name: regions.to_dict() for name, regions in self.regions.items()},
            "notes": [note.to_dict() for note in self.notes],
        }
