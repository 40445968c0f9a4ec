"""The verdict of an audit: sentences on a picture, for a reader who sees nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glle_engine.audit.chance import Chance
    from glle_engine.audit.relations import Relations

HOLDS, PARTLY = 0.6, 0.3  # share that remains, of the words of the verdict


def first_sentence(beyond: bool | None, relations: Relations | None, kept: float, chance: Chance | None) -> str:  # noqa: FBT001 # three answers
    """Return the answer to the first question: whether the data have structure, and whether the picture shows it."""
    if relations is None:
        return "Whether there is structure cannot be decided, because fewer than two features vary."
    if not relations.is_present:
        return (
            "Nothing here is more than chance: these points are as far from each other as those of data whose features "
            "are unrelated."
        )
    if not beyond:
        return f"The data have structure, but this picture does not show it: it keeps {kept:.0%} of the neighbors."
    if chance is None:
        return f"There is structure, and the picture keeps {kept:.0%} of the neighbors."
    by_chance = (
        f"{chance.preserved.mean():.0%} of the neighbors are kept, against {chance.expected.mean():.0%} by chance"
    )
    if chance.gain <= 0:
        return f"There is structure, but the picture keeps no more neighbors than that of data without: {by_chance}."
    return f"There is structure: {by_chance}."


def verdict(
    first: str,
    beyond: bool | None,  # noqa: FBT001 # three answers
    remains: float,
    dimension: tuple[int | None, float],
    p: int,
    name: str,
) -> str:
    """Return one or two sentences: the first one, and what of the picture another sample would show."""
    shared, filled = dimension
    hidden = ""
    if shared is not None and shared > p and filled >= p + 0.5:
        hidden = f" The data fill {shared} dimensions that two samples share; this picture has {p}."
    if beyond is False:
        return first + hidden
    share = f"another sample would show {remains:.0%} of it"
    if remains >= HOLDS:
        second = f"Believe the picture: {share}."
    elif remains >= PARTLY:
        second = f"Believe parts of the picture: {share}. Read the most stable points, not the shape."
    else:
        second = f"Do not believe the picture by {name}: {share}."
    return f"{first} {second}{hidden}"
