"""By what embeddings are judged, checked before anything is queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.metrics.registry import SCORES
from service.submission.validation import require_dataset
from worker.analyses.embedding import Judgement

if TYPE_CHECKING:
    from service.schemas.embeddings import ScoredIn
    from worker.storage.datasets import Dataset
    from worker.stores import Stores

NEIGHBORS = 10
# Of the points that a score can do: with so many a limited one takes about a second, and is made unasked.
QUICK_SHARE = 1 / 10


def judgement(here: Stores, dataset: Dataset, body: ScoredIn, *, uses: frozenset[str]) -> Judgement:
    """Return by what a request wants the embeddings of a data set judged.

    Parameters
    ----------
    uses
        Of labels and truth, what something else than scores has a use for.

    """
    given = {name for name in ("labels", "truth") if getattr(body, name) is not None}
    if body.labels is not None:
        _require_classes(here, require_dataset(here, body.labels), dataset.n)
    if body.truth is not None:
        _require_rows("truth", require_dataset(here, body.truth), dataset.n)
    if body.scores is None:
        names = [
            name for name, one in SCORES.items() if one.needs in {"nothing", *given} and _is_quick(name, dataset.n)
        ]
    else:
        names = list(dict.fromkeys(body.scores))
        for name in names:
            _require_score(name, given, dataset.n)
    for unused in sorted(given - uses - {SCORES[name].needs for name in names}):
        raise InvalidParameterError(
            f"{unused} is given, and neither the method nor a score has a use for it.",
            remedy=f"Leave {unused} out, or ask for a score that needs it: GET /v1/scores.",
        )
    return Judgement(
        scores=tuple(name for name in SCORES if name in names),
        n_neighbors=_neighbors(body.n_neighbors, dataset.n) if names else NEIGHBORS,
        labels=body.labels,
        truth=body.truth,
    )


def _require_score(name: str, given: set[str], n: int) -> None:
    if name not in SCORES:
        known = ", ".join(SCORES)
        raise InvalidParameterError(f"scores: {name[:50]!r} is not known.", remedy=f"Choose of {known}.")
    needs = SCORES[name].needs
    if needs != "nothing" and needs not in given:
        raise InvalidParameterError(
            f"scores: {name} needs {needs}.", remedy=f"Give {needs}, the id of a data set; or leave {name} out."
        )
    if not _does(name, n):
        most = SCORES[name].most_points
        raise InvalidParameterError(
            f"scores: {name} is of at most {most:,} points, not {n:,}.",
            remedy=f"Leave {name} out, or give at most {most:,} points.",
            details={"n_points": n, "most": most},
        )


def _does(name: str, n: int) -> bool:
    most = SCORES[name].most_points
    return most is None or n <= most


def _is_quick(name: str, n: int) -> bool:
    most = SCORES[name].most_points
    return most is None or n <= QUICK_SHARE * most


def _neighbors(asked: int | None, n: int) -> int:
    """Return the neighbours that scores look at: fewer than half of the points."""
    most = max(1, (n - 1) // 2)
    if asked is not None and asked > most:
        raise InvalidParameterError(
            f"n_neighbors={asked} of the scores is not below half of {n} points.",
            remedy=f"Give n_neighbors of at most {most}.",
            details={"n_points": n, "n_neighbors": asked},
        )
    return min(NEIGHBORS, most) if asked is None else asked


def _require_rows(what: str, told: Dataset, n: int) -> None:
    if told.n != n:
        raise InvalidShapeError(
            f"{what} has {told.n:,} rows, the data {n:,}.",
            remedy=f"Give {what} as a data set of {n:,} rows, in the order of the points.",
            details={"rows": told.n, "n_points": n},
        )


def _require_classes(here: Stores, told: Dataset, n: int) -> None:
    """Refuse a data set that tells no class of each point."""
    _require_rows("labels", told, n)
    if told.has_labels:
        return
    if told.d != 1 or not np.array_equal(found := np.asarray(here.datasets.values(told.id)), np.round(found)):
        raise InvalidShapeError(
            f"labels={told.id} has no labels beside its values, and is no column of integers.",
            remedy="Give a data set of one column of integers, or one that was uploaded with ?label=.",
            details={"shape": [told.n, told.d]},
        )
