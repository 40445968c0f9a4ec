"""Posteriors at hand in a worker, and draws that come with their lane group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

import glle_engine
from glle_engine import Posterior, fit, manifolds
from worker import drawing, tasks
from worker.draws import DrawKey, DrawsSpec
from worker.identity import digest
from worker.warm import WarmPosteriors

if TYPE_CHECKING:
    from worker.stores import Stores


@pytest.fixture(scope="module")
def posteriors() -> dict[str, Posterior]:
    """Three posteriors of one size."""
    return {f"post_{i}": fit(manifolds.make("s_curve", 120, seed=i).X) for i in range(3)}


def test_the_ones_used_longest_ago_make_room(posteriors: dict[str, Posterior]) -> None:
    """Room for two: the third drives out whichever was not asked for since."""
    size = sum(array.nbytes for array in posteriors["post_0"].arrays().values())
    warm = WarmPosteriors(2 * size + 1)
    for id_ in ("post_0", "post_1"):
        warm.keep(id_, posteriors[id_])
    assert warm.get("post_0") is posteriors["post_0"]
    warm.keep("post_2", posteriors["post_2"])
    assert warm.get("post_1") is None
    assert warm.get("post_0") is not None
    assert warm.get("post_2") is not None


def test_what_is_too_large_is_not_kept(posteriors: dict[str, Posterior]) -> None:
    """One larger than all the room leaves the others alone; no room keeps nothing."""
    warm = WarmPosteriors(0)
    warm.keep("post_0", posteriors["post_0"])
    assert warm.get("post_0") is None


def test_one_that_is_too_large_stays_alone_until_another_is_asked_for(
    stores: Stores, posteriors: dict[str, Posterior]
) -> None:
    """Its tasks share it; the next does not stand beside it."""
    warm = WarmPosteriors(1)
    for id_ in ("post_0", "post_1"):
        stores.posteriors.cache(id_, posteriors[id_])
        warm.fetch(id_, stores.posteriors)
    assert warm.get("post_0") is None
    assert warm.get("post_1") is not None


def test_a_posterior_is_read_once(stores: Stores, posteriors: dict[str, Posterior]) -> None:
    """After the first time the cache is not asked; a posterior that is not cached is nobody's error here."""
    stores.posteriors.cache("post_0", posteriors["post_0"])
    stores.warm.fetch("post_0", stores.posteriors)
    stores.warm.fetch("post_1", stores.posteriors)
    stores.cache._client.flushall()
    stores.warm.fetch("post_0", stores.posteriors)
    kept = stores.warm.get("post_0")
    assert kept is not None
    assert kept.draw(3).embedding.tobytes() == posteriors["post_0"].draw(3).embedding.tobytes()
    assert stores.warm.get("post_1") is None


def test_a_cache_that_does_not_answer_is_left_to_the_task(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read beforehand does not end the worker."""

    def refused(*_: object) -> None:
        raise redis.ConnectionError

    monkeypatch.setattr(stores.posteriors, "load", refused)
    stores.warm.fetch("post_0", stores.posteriors)
    assert stores.warm.get("post_0") is None


def test_a_single_draw_brings_its_lane_group(
    stores: Stores, posteriors: dict[str, Posterior], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for draw 6, draws 4 to 7 are cached, each as if it had been asked for; one that is there is not redone."""
    monkeypatch.setattr(tasks, "stores", lambda: stores)
    posterior = posteriors["post_0"]
    size = drawing.group_size(posterior)
    assert size == 4
    key = DrawKey(1, 6, 1.0, "posterior", "procrustes")
    group = [DrawKey(1, index, 1.0, "posterior", "procrustes") for index in (4, 5, 6, 7)]
    drawing.draw_and_cache(stores.cache, "post_0", posterior, [group[0]])
    assert drawing.with_neighbors(stores.cache, "post_0", key, size) == [group[2], group[1], group[3]]
    assert drawing.with_neighbors(stores.cache, "post_0", key, 1) == [key], "without lanes there is no group"
    drawing.draw_and_cache(stores.cache, "post_0", posterior, [group[2], group[1], group[3]])
    for one in group:
        entry = stores.cache.get(one.cache_key("post_0"))
        assert entry is not None
        assert entry.meta["index"] == one.index
        assert entry.arrays["embedding"].tobytes() == posterior.draw(one.index, seed=1).embedding.tobytes()
        assert drawing.cached_draw(one, entry).diagnostics == posterior.draw(one.index, seed=1).diagnostics


def test_a_draws_job_does_not_overdo_it(
    stores: Stores, posteriors: dict[str, Posterior], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws that nobody asked for come with single ones alone: a job of five makes five."""
    stores.warm.keep("post_0", posteriors["post_0"])
    monkeypatch.setattr(tasks, "stores", lambda: stores)
    monkeypatch.setattr(
        stores.posteriors,
        "fetch",
        lambda id_: type("Record", (), {"id": id_, "numbers": glle_engine.NUMBERS, "drawn_from": id_})(),
    )
    monkeypatch.setattr(stores.posteriors, "exists", lambda id_: id_ == "post_0")
    spec = DrawsSpec(
        n=120, p=2, count=5, first=2, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
        shard_seconds=9.0,
    )  # fmt: skip
    job, _ = stores.jobs.create(
        kind="draws", claim=digest(spec.to_dict()), posterior="post_0", spec=spec.to_dict(), total=spec.total
    )
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    assert len(list(stores.cache._client.scan_iter("draw:post_0:*"))) == 5
