r"""Audit of an embedding: whether a reader may believe the map, and which parts of it.

Three questions, in this order:

1. Do the data have structure, and does the map show it (`glle_engine.audit.audited_map`)?
2. How much of the map would another sample of half as many points show (`remains`)?
3. Of what can be read from a map, what remains: islands, their arrangement, neighborhoods, shapes
   (`glle_engine.audit.answers`)? And where does the map tear or fold the data?

All but the first come from the maps of separate halves of the data (`glle_engine.audit.halves`). Halves :math:`A` and
:math:`B` without common points are two independent samples of the population. Each is embedded, and all points are
placed in both embeddings. The share of the map that both show is

.. math:: R^2 = 1 - \text{disparity}(Y_A, Y_B)

with the Procrustes disparity. This :math:`R^2` describes samples of half the size, so for the whole data it errs on the
careful side. `remains` is the smaller of two means: the mean :math:`R^2` of the halves with each other, and the mean
:math:`R^2` of the audited map with the halves, because halves can agree on something that the audited map does not
have. The spread of a point is its spread over halves, without a factor (docs/explanation/believe.md).

The audit uses 4 halves at first, then 8, 16 or 24, until more halves would hardly change the statement (`is_certain`):

- `remains` is 2.5 standard errors away from the thresholds of the statement, or there are 16 halves. If an island can
  be trusted already, the statement is about islands, and `remains` does not matter.
- Each island of the data is isolated in fewer than 60 % or in more than 95 % of the halves, or there are 24 halves. To
  be trusted, an island has to be isolated in 80 %.

A map without structure, and coordinates that are no map of the method, need no further halves after the first 8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glle_engine.audit.audited_map import AuditedMap
from glle_engine.audit.conclusion import conclude_from_data, conclude_from_halves
from glle_engine.audit.halves import MIN_PAIRS, Halves
from glle_engine.audit.options import AuditOptions
from glle_engine.audit.sources import source_of
from glle_engine.audit.statement import Statement, state
from glle_engine.reliability.thresholds import (
    MIN_PARTLY_TRUSTED_SHARE,
    MIN_STANDARD_ERRORS,
    MIN_TRUSTED_SHARE,
    UNCLEAR_ISOLATED_SHARES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from glle_engine.audit.result import Audit
    from glle_engine.audit.statement import Facts

PAIRS_OF_STAGES = (MIN_PAIRS, 4, 8, 12)  # an audit is yielded after each of these numbers of pairs of halves
MIN_FINAL_PAIRS = PAIRS_OF_STAGES[1]  # an audit may end after this many pairs of halves
MAX_USUAL_PAIRS = 8  # an audit has more pairs only if it is unclear whether islands are isolated in other samples


def audit(X: ArrayLike, Y: Any = None, **options: Any) -> Audit:
    """Find out which parts of an embedding the data support, by embedding separate halves of the data.

    Parameters
    ----------
    X : (n, d) array-like
        The data; a sparse matrix is converted to a dense array.
    Y : (n, p) array-like, Posterior, fitted estimator or Embedding, optional
        Coordinates from anywhere, or a posterior of the data. If a method is given as well, the coordinates are
        compared with the method's maps. Without `Y`, the method's own map of the data is audited.
    **options
        Fields of `glle_engine.audit.options.AuditOptions`, such as `method`, `labels`, `blocks` and `seed`.

    Raises
    ------
    GlleError
        If the data are a matrix of distances between all pairs, if there are too few points, or if `Y` and `X` differ
        in their number of points. The message has a remedy.

    """
    *_, final = audits(X, Y, **options)
    return final


def audits(X: ArrayLike, Y: Any = None, **options: Any) -> Iterator[Audit]:
    """Yield an audit after each stage, the first one after two pairs of halves, until its statement is certain.

    A stage embeds some more pairs of separate halves of the data. All audits but the last are preliminary: their level
    is "unknown" unless it is certain already, and until four pairs of halves are embedded they have no p-values and no
    dimension. Parameters and errors are the same as for `audit`.
    """
    chosen = AuditOptions(**options)
    source, embedding = source_of(X, Y, chosen)
    is_given = chosen.method is not None and Y is not None and not chosen.is_own_map
    with chosen.open_pool() as pool:
        audited = AuditedMap.from_source(source, embedding, chosen, pool, is_given=is_given)
        if source.embedder is None:
            yield conclude_from_data(audited)
            return
        halves = Halves(audited, pool)
        embed_executor = pool if source.is_threaded else chosen.executor
        for pairs in PAIRS_OF_STAGES:
            halves.extend(pairs, embed_executor)
            if pairs == MIN_FINAL_PAIRS:
                audited = audited.compared_with_chance(embed_executor, pool).with_dimension(embed_executor)
            audit_so_far, facts = conclude_from_halves(audited, halves)
            if pairs >= MIN_FINAL_PAIRS and (pairs == PAIRS_OF_STAGES[-1] or is_certain(audit_so_far, pairs)):
                yield audit_so_far
                return
            yield _preliminary(audit_so_far, facts)


def is_certain(audit: Audit, pairs: int) -> bool:
    """Return whether an audit can end, because more pairs of halves of the data would hardly change its statement.

    After `pairs` pairs, it cannot end while an island of the data is isolated in the maps of 60 % to 95 % of the
    halves. With fewer than 8 pairs and without a trusted island, it also cannot end while `remains` (the share of the
    map that other samples show) is within 2.5 standard errors of a threshold.
    """
    if audit.level == "no" or audit.remains is None or audit.remains_error is None:
        return True
    clearance, islands = MIN_STANDARD_ERRORS * audit.remains_error, audit.islands
    is_clear = (
        all(abs(audit.remains - threshold) > clearance for threshold in (MIN_PARTLY_TRUSTED_SHARE, MIN_TRUSTED_SHARE))
        or pairs >= MAX_USUAL_PAIRS
    )
    if not islands.count or islands.in_samples is None:
        return is_clear
    share = islands.in_samples[islands.in_data]
    is_unclear_island = (share >= UNCLEAR_ISOLATED_SHARES[0]) & (share <= UNCLEAR_ISOLATED_SHARES[1])
    return not is_unclear_island.any() and (is_clear or bool(islands.stays.any()))


def _preliminary(audit: Audit, facts: Facts) -> Audit:
    """Return a copy of an audit that is marked as preliminary, and whose statement leaves out numbers that may change.

    Its level is "unknown", because more halves may change it. There is one exception: coordinates that are no map of
    the method are compared with the data alone, which halves do not change, so that their level "no" stays. Such an
    audit is recognized by its `remains`, which is None.
    """
    level = audit.level if audit.level == "no" and audit.remains is None else "unknown"
    statement = Statement(level, state(replace(facts, is_preliminary=True)).lines)
    verdict = f"Preliminary: {statement.text}"
    return replace(audit, verdict=verdict, level=statement.level, statement=statement, is_preliminary=True)
