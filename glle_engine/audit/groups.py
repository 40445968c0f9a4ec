"""Labeled groups of points: which of them stay apart in the maps of other samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.audit.islands import contact
from glle_engine.base.arrays import array_of
from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.pictures.points import count_apart
from glle_engine.base.results import brief
from glle_engine.base.texts import Note, listed
from glle_engine.reliability.thresholds import GROUP_CONTACT

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MAX_DECIMAL_GROUPS = 20  # labels with decimals are groups up to this number of different values
MAX_NAMED_GROUPS = 5  # a sentence names at most this many groups


@dataclass(frozen=True, eq=False)
class Groups:
    """Whether points with the same label form separate groups in the maps of other samples.

    Attributes
    ----------
    names : (g,) array
        The labels, ascending.
    apart : (g, g) float64
        Share of maps in which two groups are isolated from each other. Two groups are isolated if at most a tenth of
        the points of each group have a point of the other group nearby: within the median distance of the group's
        points to their fifth neighbor inside the group.
    member_probability : (n,) float64
        Share of maps in which most of a point's neighbors have the point's own label.
    classes : (n,) int64
        Index in `names` of each point's label.

    """

    names: NDArray[Any]
    apart: NDArray[np.float64]
    member_probability: NDArray[np.float64]
    classes: NDArray[np.int64]

    __repr__ = brief

    def statement(self) -> str:
        """Return a clause for the verdict that says which labels stay apart; an empty text for a single label."""
        names, apart_from = [str(name) for name in self.names], count_apart(self.apart)
        count = len(names)
        if count < 2:
            return ""
        if (apart_from == count - 1).all():
            named = f"the labels {listed(names)}" if count <= MAX_NAMED_GROUPS else f"all {count} labels"
            return f"{named} stay apart from each other"
        if count == 2:
            return f"the labels {listed(names)} do not stay apart"
        pairs = f"{apart_from.sum() // 2} of {count * (count - 1) // 2} pairs of labels stay apart"
        mixed = [name for name, is_mixed in zip(names, 2 * apart_from < count - 1, strict=True) if is_mixed]
        if not 0 < len(mixed) <= min(MAX_NAMED_GROUPS, count - 1):
            return pairs
        stay = f"label {mixed[0]} stays" if len(mixed) == 1 else f"labels {listed(mixed)} stay"
        return f"{pairs} ({stay} apart from fewer than half of the others)"

    def to_dict(self) -> dict[str, Any]:
        """Return `names` and `apart` as a JSON-able dictionary."""
        return {"names": self.names.tolist(), "apart": self.apart.tolist()}


def labels_and_classes(labels: ArrayLike, n: int, name: str = "labels") -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct labels (g,), ascending, and the index (n,) of each point's label.

    Raises `InvalidParameterError` for another number of labels than `n`; `name` is what the error calls them.
    """
    names, classes = np.unique(array_of(labels, f"the {name}", are_labels=True), return_inverse=True)
    if classes.shape != (n,):
        raise InvalidParameterError(
            f"The {name} have shape {classes.shape}, but there are {n} points.",
            remedy=f"Give an array of {n} {name}, one for each point.",
        )
    return names, classes.astype(np.int64)


def groups_of_labels(
    labels: ArrayLike | None, n: int
) -> tuple[tuple[NDArray[Any], NDArray[np.int64]] | None, tuple[Note, ...]]:
    """Return a pair: the different labels with the class of each point (`labels_and_classes`), and notes about them.

    The first element is None without labels, or if there are too many different labels to be groups; then a note says
    so.
    """
    if labels is None:
        return None, ()
    groups = labels_and_classes(labels, n)
    try:
        require_groups(*groups)
    except InvalidParameterError as error:
        return None, (Note("labels-are-no-groups", error.text),)
    return groups, ()


def require_groups(names: NDArray[Any], classes: NDArray[np.int64]) -> None:
    """Raise `InvalidParameterError` if labels look like measurements or ids rather than groups.

    Labels look like measurements if more than 20 different values are not integers, and like ids if more than half of
    the points have a label that no other point has. `names` and `classes` (n,) are as in `labels_and_classes`.
    """
    sizes, n = np.bincount(classes), len(classes)
    is_measured = names.dtype.kind == "f" and len(names) > MAX_DECIMAL_GROUPS and bool((names != np.round(names)).any())
    if is_measured or 2 * int(sizes[sizes > 1].sum()) < n:
        raise InvalidParameterError(
            f"The labels have {len(names):,} different values for {n:,} points, too many to be groups.",
            remedy="Give groups, such as quartiles of the numbers; or audit without labels, and color the picture "
            "by the numbers.",
        )


def groups_apart(
    Y: NDArray[np.float64], classes: NDArray[np.int64], rows: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Return which labeled groups i and j lie apart, (g, g): at most 10 % of each group's points touch the other.

    A point touches a group if one of the group's points is about as near as the point's neighbors in its own group are
    (`glle_engine.audit.islands.contact`).
    Only the points `rows` are compared, by default all points, and a group without such points is apart from no group.
    To judge the map of a half of the data, pass the points that are not in the half, because a map exaggerates the gaps
    between the points from which it was made.
    """
    count = int(classes.max()) + 1
    rows = np.ones(len(Y), bool) if rows is None else rows
    present, of_rows = np.unique(classes[rows], return_inverse=True)
    touching = contact(Y[rows], of_rows)[0]
    apart = np.zeros((count, count), bool)
    apart[np.ix_(present, present)] = np.maximum(touching, touching.T) <= GROUP_CONTACT
    np.fill_diagonal(apart, val=False)
    return apart


def compare_groups(
    names: NDArray[Any], classes: NDArray[np.int64], near: NDArray[Any], apart: NDArray[np.bool_]
) -> Groups:
    """Return how often groups are apart, and points are within their own group, in the maps of m halves of the data.

    For each pair of groups, the result has the share of the maps in which the two are apart. For each point, it has the
    share of the maps in which most of the point's neighbors have its own label. `classes` (n,) has the index of each
    point's label in `names`, `near` (m, n, k) are the neighbors of each point in the maps, and `apart` (m, g, g) says
    which groups are apart in each map.
    """
    member = np.mean([(classes[each] == classes[:, None]).mean(axis=1) > 0.5 for each in near], axis=0)
    return Groups(names, apart.mean(axis=0), member, classes)
