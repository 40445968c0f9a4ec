"""Statement of an audit: a level, and up to three lines that say what to read, what not, and why.

Each thing that a reader could take from a map (islands, arrangement, shape, layout, neighbors) is either trusted or
distrusted, and the sentences are made from these two lists, so that they cannot contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from glle_engine.audit.answers import MIN_ARRANGED_ISLANDS
from glle_engine.base.results import brief
from glle_engine.base.texts import Line, Role, Text, Way, joined, listed
from glle_engine.reliability.thresholds import (
    FEW_DISTURBED,
    MANY_DISTURBED,
    MIN_DISTANCE_CORRELATION,
    MIN_KEPT,
    MIN_PARTLY_TRUSTED_SHARE,
    MIN_POINTS_FOR_WEAK_STRUCTURE,
    MIN_SHARE_NEAR_IN_DATA,
    MIN_SHARE_OF_MOST_SAMPLES,
    MIN_TRUSTED_SHARE,
    SMALL_TEAR_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from glle_engine.audit.agreement import Agreement
    from glle_engine.audit.answers import Answer, Disturbed, Seam
    from glle_engine.audit.islands import Islands

Level = Literal["trust", "partly", "no", "unknown"]
Asks = Literal["method", "standardize", "blocks"]
MAX_NAMED_ISLANDS = 5  # a sentence names at most this many islands
MAX_REASONS = 3


@dataclass(frozen=True)
class Statement:
    """The verdict on a map as data: its level, its lines, and what can be read from the map.

    Attributes
    ----------
    level : {"trust", "partly", "no", "unknown"}
        How much of the map can be trusted: everything but single neighbors ("trust"), some of it ("partly"), nothing
        ("no"), or the audit cannot tell ("unknown").
    lines : tuple of Line
        Up to three: what to read, what not to read or what to do first, and why.
    trusted, distrusted : tuple of str
        What can be read from the map, and what cannot: some of "islands", "arrangement", "shape", "layout" and
        "neighbors".
    asks : {"method", "standardize", "blocks"} or None
        What the user has to do before an audit can say more: name the method of the map, standardize the features, or
        name the blocks of rows that belong together.

    """

    level: Level
    lines: tuple[Line, ...]
    trusted: tuple[str, ...] = ()
    distrusted: tuple[str, ...] = ()
    asks: Asks | None = None

    __repr__ = brief

    @property
    def text(self) -> str:
        """The lines as one text, with ✓ before what to read and ✗ before what not to read."""
        return "\n".join(map(str, self.lines))


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What an audit found, as input for `state`.

    An island is a separate clump of points in the map. A share, such as `remains`, is how much of something another
    sample of the data would show, too.

    Attributes
    ----------
    name : str
        Name of the method, as it stands in sentences.
    n : int
        Number of distinct points.
    has_structure : bool or None
        Whether the features are related; None if it cannot be decided.
    fidelity : Agreement
        Agreement of the map with the data.
    islands : Islands
        The islands of the map, and whether the data and other samples have them, too.
    remains : float or None
        Share of the map as a whole; None for coordinates without a method.
    arrangement, neighborhoods, shape : Answer or None
        Shares of the arrangement of the islands, of the neighbors, and of the islands' shapes, as in `Audit`.
    disturbed : Disturbed
        Points that the map tears off their neighbors, or lays onto other points.
    p : int
        Number of coordinates of the map.
    has_gain : bool
        Whether the map keeps clearly more neighbors than the method's maps of permuted data.
    foreign : (float, float) or None
        Only if the coordinates are not a map of the method: the share of neighbors that they have in common with the
        method's maps, and the share that these maps have in common with each other.
    dominant : (str, float) or None
        Column with nearly all of the variance, and its share.
    half : int or None
        Number of points in each half that is embedded; None unless the halves are halves of a sample of the data.
    hidden : int or None
        Number of dimensions that the data fill, if the map has fewer (`p`).
    groups : str
        Clause that says which labeled groups stay apart; empty without labels.
    is_placed_by_chance : bool
        Whether the method places islands by chance, so that their arrangement means nothing.
    is_preliminary : bool
        Whether more halves of the data will be embedded; the statement then leaves out shares and tears, which may
        change.
    clustered : tuple of str
        Columns whose values form clusters, if no relation among the features was found.
    dependent : str
        Reason why halves of the rows are not independent samples; empty if they may be.

    """

    name: str
    n: int
    has_structure: bool | None
    fidelity: Agreement
    islands: Islands
    disturbed: Disturbed | None = None
    p: int = 2
    half: int | None = None
    remains: float | None = None
    arrangement: Answer | None = None
    neighborhoods: Answer | None = None
    shape: Answer | None = None
    has_gain: bool = True
    foreign: tuple[float, float] | None = None
    dominant: tuple[str, float] | None = None
    hidden: int | None = None
    groups: str = ""
    clustered: tuple[str, ...] = ()
    dependent: str = ""
    is_placed_by_chance: bool = False
    is_preliminary: bool = False


def state(facts: Facts) -> Statement:
    """Return the statement on a map: its level, and one to three lines that say what to read, what not, and why."""
    unseen = _unseen(facts)
    if facts.foreign is not None:
        with_map, of_maps = facts.foreign
        why = _fidelity(facts) if unseen is None else unseen[1:]
        action = (
            f"Audit these coordinates by the method that made them: this is not a map by {facts.name}, because it "
            f"shares {with_map:.0%} of its neighbors with the maps of {facts.name}, and these share {of_maps:.0%} "
            "with each other."
        )
        return _first("unknown" if unseen is None else unseen[0], action, why, asks="method")
    if unseen is not None:
        level, action, because = unseen
        roles: dict[str, Role] = {"no": "avoid", "partly": "read"}
        return Statement(level, _lines({roles.get(level, "first"): f"{action}."}, [because]))
    if facts.dominant is not None:
        name, share = facts.dominant
        action = (
            f"Standardize the features before you read this map, for example by their standard deviations: {name} has "
            f"{share:.0%} of the variance, and the map shows little else."
        )
        return _first("unknown", action, _reasons(facts)[:1], asks="standardize")
    if facts.remains is None:
        action = (
            "Give the method of this map to learn whether another sample would show it: coordinates alone cannot tell."
        )
        return _first("unknown", action, _fidelity(facts), asks="method")
    if facts.dependent:
        action = (
            "Before you rely on this map, name the subject or series of each row, or stretches of one series, with "
            f"{Way('blocks')}: {facts.dependent}, so that halves of the rows are no independent samples."
        )
        expected = f"were they independent, {_expected(facts, 'we would expect')}"
        return _first("unknown", action, [expected], asks="blocks")
    return _on_samples(facts)


def _first(level: Level, action: str, why: Sequence[str], *, asks: Asks) -> Statement:
    """Return a statement whose first line is an `action`, what the user has to do before the map can be read."""
    return Statement(level, _lines({"first": action}, why), asks=asks)


def _lines(actions: dict[Role, str], why: Sequence[str]) -> tuple[Line, ...]:
    """Return a line for each text in `actions` (role: text) that is not empty, and one line of reasons, if any."""
    lines = [Line(role, Text(text)) for role, text in actions.items() if text]
    return (*lines, Line("why", _sentence(why))) if why else tuple(lines)


def _unseen(facts: Facts) -> tuple[Level, str, str] | None:
    """Return level, action and reason if the map shows no structure; None if it shows some, or cannot be tested."""
    apart = "points lie as far apart as points with independent features would"
    if facts.has_structure is False and (count := len(facts.clustered)):
        named = listed(facts.clustered) if count <= MAX_NAMED_ISLANDS else f"{count} columns"
        clusters = (
            "has clusters, but it combines with the other columns as an independent column would"
            if count == 1
            else "have clusters, but they combine as independent columns would"
        )
        action = "Read clusters of single columns from this map, and no relations between columns"
        return "partly", action, f"{named} {clusters}"
    if facts.has_structure is False and facts.n < MIN_POINTS_FOR_WEAK_STRUCTURE:
        action = f"Collect more points before you read this map: {facts.n} points are too few to tell"
        return "unknown", action, "we found no structure, but in so few points we would miss all but a strong one"
    if facts.has_structure is False:
        return "no", "Do not read structure into this map: we found none", f"your {apart}"
    if facts.has_structure and facts.fidelity.kept - facts.fidelity.by_chance < MIN_KEPT:
        action = "Do not rely on this map: the data have structure, but the map does not show it"
        return "no", action, _kept(facts.fidelity)
    return None


def _on_samples(facts: Facts) -> Statement:
    """Return the statement on a map that was compared with maps of halves of the data: what to read or not, and why.

    If the map can be trusted only in part, what not to read is the first line.
    """
    assert facts.remains is not None
    things = dict(_things(facts))
    trusted = {thing: text for thing, (is_trusted, text) in things.items() if is_trusted}
    distrusted = {thing: text for thing, (is_trusted, text) in things.items() if not is_trusted}
    stays = int(facts.islands.stays.sum())
    is_whole = stays == facts.islands.count if stays else facts.remains >= MIN_TRUSTED_SHARE
    is_sound = is_whole and not _disturbances(facts) and facts.hidden is None
    level: Level = "trust" if is_sound and not distrusted.keys() - {"neighbors"} else "partly"
    if facts.has_structure is None:
        level = "unknown"
    if not trusted:
        level = "no"
    exceptions = [*distrusted.values(), *_exceptions(facts)]
    actions: dict[Role, str] = {"avoid": "Do not rely on this map."}
    if trusted:
        reads = f"Trust {listed([*trusted.values()])}."
        avoids = f"Do not read {listed(exceptions, 'or')} from this map." if exceptions else ""
        actions = {"avoid": avoids, "read": reads} if level == "partly" else {"read": reads, "avoid": avoids}
    reasons = ["more halves of your data are being mapped"] if facts.is_preliminary else _reasons(facts)[:MAX_REASONS]
    return Statement(level, _lines(actions, reasons), tuple(trusted), tuple(distrusted))


def _things(facts: Facts) -> Iterator[tuple[str, tuple[bool, str]]]:
    """Yield (name, (is_trusted, phrase)) for islands, their arrangement and shape, the layout, and the neighbors.

    Only what the map has is yielded. The name, such as "islands", is an entry of `Statement.trusted` or `distrusted`.
    The phrase, such as "all 3 islands", is what the verdict writes after "Trust" or "Do not read".
    """
    assert facts.remains is not None
    islands, arrangement, shape = facts.islands, facts.arrangement, facts.shape
    if stays := islands.stays.any():
        yield "islands", (True, _trusted_islands(islands))
        between = "the distances between islands"
        if facts.is_placed_by_chance and islands.count >= MIN_ARRANGED_ISLANDS:
            yield "arrangement", (False, f"{between} (this method places them by chance)")
        elif arrangement is not None and (islands.stays.all() or arrangement.share < MIN_TRUSTED_SHARE):
            # Distances to an island that other samples do not show mean nothing: all islands must be trusted.
            is_arranged = arrangement.share >= MIN_TRUSTED_SHARE
            yield "arrangement", (is_arranged, between + _scale(facts, arrangement.share, MIN_TRUSTED_SHARE))
        if shape is not None:
            text = "the shapes of the islands" + _scale(facts, shape.share, MIN_TRUSTED_SHARE)
            yield "shape", (shape.share >= MIN_TRUSTED_SHARE, text)
    elif islands.count:
        yield "islands", (False, "the islands as separate groups")
    if not stays:
        is_true = max(facts.fidelity.straight, facts.fidelity.along) >= MIN_DISTANCE_CORRELATION
        text = "the rough layout" if MIN_PARTLY_TRUSTED_SHARE <= facts.remains < MIN_TRUSTED_SHARE else "the layout"
        scale = _scale(
            facts, facts.remains, MIN_PARTLY_TRUSTED_SHARE if facts.remains < MIN_TRUSTED_SHARE else MIN_TRUSTED_SHARE
        )
        if facts.remains >= MIN_PARTLY_TRUSTED_SHARE and not is_true:
            scale = " (its distances are not the distances of the data)"
        yield "layout", (facts.remains >= MIN_PARTLY_TRUSTED_SHARE and is_true, text + scale)
    yield "neighbors", _neighbors(facts)


def _neighbors(facts: Facts) -> tuple[bool, str]:
    """Return whether the neighbors in the map can be trusted, and the phrase of the verdict about them.

    If they cannot, the phrase ends with the reason in brackets, as far as the audit knows it.
    """
    near, text = facts.neighborhoods, "single neighbors"
    if near is None:
        return False, text
    if near.share < MIN_PARTLY_TRUSTED_SHARE:
        return False, text + _scale(facts, near.share, MIN_PARTLY_TRUSTED_SHARE)
    if facts.fidelity.near < MIN_SHARE_NEAR_IN_DATA:
        return False, f"{text} (too few are near in the data)"
    if not facts.has_gain:
        return False, f"{text} (maps of data without structure keep hardly fewer of them)"
    return True, "which points are neighbors" + _scale(facts, near.share, MIN_PARTLY_TRUSTED_SHARE)


def _scale(facts: Facts, share: float, needed: float) -> str:
    """Return a text such as " (43%, 50% needed)", or an empty text in a preliminary audit, whose shares may change."""
    return "" if facts.is_preliminary else f" ({share:.0%}, {needed:.0%} needed)"


def _exceptions(facts: Facts) -> list[str]:
    """Return phrases for what a reader must not read from a map of which other things can be trusted.

    Such exceptions are, for example, islands that are no separate groups, or the gap at a tear.
    """
    islands, parts = facts.islands, list[str]()
    if (stays := islands.stays).any() and (count := int((~stays).sum())):
        one = "island" if count == 1 else "islands"
        subject = (
            f"{one} {listed(_names(islands, ~stays))}" if count <= MAX_NAMED_ISLANDS else f"the other {count} islands"
        )
        parts.append(f"{subject} as {'a separate group' if count == 1 else 'separate groups'}")
    if facts.remains is not None and MIN_PARTLY_TRUSTED_SHARE <= facts.remains < MIN_TRUSTED_SHARE and not stays.any():
        parts.append("details of the layout")
    if facts.is_preliminary:
        return parts
    disturbed = facts.disturbed
    if disturbed is not None and _is_local(disturbed.is_torn):
        parts.append("the gap at a tear as a gap in the data")
    if disturbed is not None and _is_local(disturbed.is_glued):
        parts.append("points laid onto each other as neighbors")
    if facts.hidden is not None:
        parts.append(f"the whole of the data (they fill {facts.hidden} dimensions, and this map has {facts.p})")
    return parts


def _is_local(flags: NDArray[np.bool_]) -> bool:
    """Return whether the `flags` (n,) mark some points, but not most of them."""
    return bool(FEW_DISTURBED <= flags.mean() <= MANY_DISTURBED and flags.sum() > 1)


def _trusted_islands(islands: Islands) -> str:
    count, stays = islands.count, int(islands.stays.sum())
    if count == stays:
        return "both islands" if count == 2 else f"all {count} islands"
    return f"{stays} of the {count} islands{_named(islands, islands.stays)}"


def _reasons(facts: Facts) -> list[str]:
    """Return the reasons for the statement, the most important reason first."""
    reasons = []
    if facts.has_structure is None:
        reasons.append("whether there is structure cannot be decided, because fewer than two features vary")
    islands = facts.islands
    if islands.count and (cut := int(islands.is_cut.sum())):
        one, them = ("one island is", "it") if cut == 1 else (f"{cut} islands are", "them")
        named = _named(islands, islands.is_cut)
        reasons.append(f"{one} separate in the maps but not in the data, so that the method may have cut {them}{named}")
    changing = ~islands.stays & ~islands.is_cut
    is_usual = changing & (False if islands.in_samples is None else islands.in_samples >= MIN_SHARE_OF_MOST_SAMPLES)
    for chosen, how in (
        (changing & ~is_usual, "not separate in other samples"),
        (is_usual, "separate in most other samples, but not in all"),
    ):
        if islands.count and (count := int(chosen.sum())):
            change = "one island is" if count == 1 else f"{count} islands are"
            reasons.append(f"{change} {how}{_named(islands, chosen)}")
    reasons += _disturbances(facts)
    if facts.remains is not None:
        reasons.append(_expected(facts))
    if islands.outside:
        points = "point is" if islands.outside == 1 else "points are"
        reasons.append(f"{islands.outside} {points} in clumps too small to judge (gray)")
    false, true = _agreement(facts)
    reasons = [*false, *reasons, *true]
    if facts.groups:
        reasons.insert(MAX_REASONS - 1, facts.groups)
    return reasons


def _expected(facts: Facts, expect: str = "we expect") -> str:
    """Return a clause that says what share of the map a new sample would reproduce; it begins with `expect`."""
    size = "half this size" if facts.half is None else f"of {facts.half:,} points"
    return f"{expect} a new sample {size} to reproduce {facts.remains:.0%} of this map (R²)"


def _kept(fidelity: Agreement, subject: str = "it") -> str:
    return f"{subject} keeps {fidelity.kept:.0%} of the neighbors, and random positions {fidelity.by_chance:.0%}"


def _true_distances(fidelity: Agreement) -> str:
    """Return a clause that says whether the map's distances rank like Euclidean or geodesic distances in the data."""
    straight, along = f"({fidelity.straight:.2f})", f"({fidelity.along:.2f})"
    is_straight, is_along = (value >= MIN_DISTANCE_CORRELATION for value in (fidelity.straight, fidelity.along))
    if is_straight and is_along:
        return f"its distances rank like the distances in the data (correlation {fidelity.straight:.2f})"
    if is_straight:
        return f"its distances rank like straight distances {straight}, not like distances along the data {along}"
    if is_along:
        return f"its distances rank like distances along the data {along}, not like straight ones {straight}"
    return f"its distances rank neither like straight distances {straight} nor like ones along the data {along}"


def _agreement(facts: Facts) -> tuple[list[str], list[str]]:
    """Return clauses that say which distances and neighbors disagree with the data, and others that say which agree."""
    fidelity, false, true = facts.fidelity, list[str](), list[str]()
    if facts.remains is not None and facts.remains >= MIN_PARTLY_TRUSTED_SHARE and not facts.islands.stays.any():
        is_true = max(fidelity.straight, fidelity.along) >= MIN_DISTANCE_CORRELATION
        (true if is_true else false).append(_true_distances(fidelity))
    shares = f"{fidelity.near:.0%} of its neighbors are near in the data ({MIN_SHARE_NEAR_IN_DATA:.0%} needed)"
    if facts.neighborhoods is not None:
        shares += f", and {facts.neighborhoods.share:.0%} are neighbors in another sample"
    if fidelity.near < MIN_SHARE_NEAR_IN_DATA:
        false.append(f"{shares} ({MIN_PARTLY_TRUSTED_SHARE:.0%} needed)" if facts.neighborhoods is not None else shares)
    elif _neighbors(facts)[0]:
        true.append(shares)  # without a threshold: the verdict's line on what to read says how much is needed
    return false, true


def _fidelity(facts: Facts) -> list[str]:
    """Return clauses about what an audit can see without maps of halves of the data, which need the map's method.

    They are about kept neighbors, islands that are separate in the data, tears and folds.
    """
    islands = facts.islands
    parts = [_kept(facts.fidelity, "the map")]
    if islands.count:
        count = int(islands.in_data.sum())
        whole = "both islands" if islands.count == 2 else f"all {islands.count} islands"
        some = f"{count} of its {islands.count} islands" if count else f"none of its {islands.count} islands"
        are = "is" if count == 1 else "are"
        parts.append(f"{whole if count == islands.count else some} {are} separate in the data")
    return [*parts, *_disturbances(facts)][:MAX_REASONS]


def _disturbances(facts: Facts) -> list[str]:
    """Return a clause about tears and one about folds, each only if it concerns some points, but not most of them."""
    disturbed, parts = facts.disturbed, list[str]()
    if disturbed is None:
        return parts
    texts = {
        "tear": "lie far from their neighbors, where the map tears",
        "fold": "lie beside points that are far in the data",
    }
    for kind, flags in (("tear", disturbed.is_torn), ("fold", disturbed.is_glued)):
        if _is_local(flags):
            count = int(flags.sum())
            seams = [seam for seam in disturbed.seams if seam.kind == kind]
            several = f"{count} points {texts[kind]}"
            if kind == "tear" and len(seams) > 1:
                several = f"the map tears the data in {len(seams)} places ({count} points)"
            parts.append(_sides(seams[0], facts.islands) if len(seams) == 1 else several)
    return parts


def _sides(seam: Seam, islands: Islands) -> str:
    """Return a clause about the two regions that a map tears apart or lays onto each other."""
    (a, first), (b, second) = sorted(
        (islands.names[max(island, 0)], len(side)) for island, side in zip(seam.islands, seam.sides, strict=True)
    )
    is_tear = seam.kind == "tear"
    if is_tear and min(first, second) < SMALL_TEAR_SHARE * len(islands.of_points):
        where = f" between islands {a} and {b}" if a != b else ""
        return f"the map has a small tear{where} ({first} and {second} points)"
    if a != b:
        defect = (
            f"the map tears islands {a} and {b} apart" if is_tear else f"the map folds parts of islands {a} and {b}"
        )
        return f"{defect} ({first} and {second} points)"
    if is_tear:
        return f"the map tears one surface in two ({first} and {second} points lie along the tear)"
    return f"the map lays two regions of {first} and {second} points onto each other"


def _named(islands: Islands, chosen: NDArray[np.bool_]) -> str:
    names = _names(islands, chosen)
    return f" ({', '.join(names)})" if len(names) <= MAX_NAMED_ISLANDS else ""


def _names(islands: Islands, chosen: NDArray[np.bool_]) -> list[str]:
    return [islands.names[island] for island in np.flatnonzero(chosen)]


def _sentence(parts: Sequence[str]) -> Text:
    """Join clauses by semicolons to a sentence with a capital and a period."""
    first, *others = parts
    return joined([first[0].upper() + first[1:], *others], "; ") + "."
