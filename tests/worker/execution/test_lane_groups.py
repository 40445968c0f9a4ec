"""Single draws, computed with their lane group."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import glle_engine
from glle_engine import Posterior, fit, manifolds
from worker.execution import draws, tasks
from worker.records.draws import DrawKey, DrawsSpec
from worker.records.ids import digest

if TYPE_CHECKING:
    from worker.stores import Stores


@pytest.fixture(scope="module")
def posteriors() -> dict[str, Posterior]:
    """Fit a posterior."""
    return {"post_0": fit(manifolds.make("s_curve", 120, seed=0).X)}


def test_a_single_draw_caches_its_lane_group(stores: Stores, posteriors: dict[str, Posterior]) -> None:
    """The lane group of draw 6 has draws 4 to 7, each equal to a separate draw."""
    posterior = posteriors["post_0"]
    key = DrawKey(1, 6, 1.0, "posterior", "procrustes")
    group = draws.lane_group(key, draws.group_size(posterior))
    assert [each.index for each in group] == [6, 4, 5, 7]
    assert draws.lane_group(key, 1) == [key], "without lanes there is no group"
    draws.draw_and_cache(stores.draws, "post_0", posterior, group)
    for key_of_draw in group:
        entry = stores.draws.get("post_0", key_of_draw)
        assert entry is not None
        assert entry.meta["index"] == key_of_draw.index
        assert entry.arrays["embedding"].tobytes() == posterior.draw(key_of_draw.index, seed=1).embedding.tobytes()
        assert (
            draws.cached_draw(key_of_draw, entry).diagnostics == posterior.draw(key_of_draw.index, seed=1).diagnostics
        )


def test_a_draws_job_computes_only_its_draws(
    stores: Stores, posteriors: dict[str, Posterior], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only single draws complete their lane group; a job of five computes five."""
    stores.posteriors.cache("post_0", posteriors["post_0"])
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    monkeypatch.setattr(
        stores.posteriors,
        "fetch",
        lambda id_: type(
            "Record",
            (),
            {"id": id_, "numbers": glle_engine.NUMBERS, "arrays_id": id_, "arrays_sha256": None, "nbytes": 0},
        )(),
    )
    monkeypatch.setattr(stores.posteriors, "exists", lambda id_: id_ == "post_0")
    spec = DrawsSpec(
        n=120, p=2, count=5, first=2, seed=0, scales=(1.0,), grid=False, source="posterior", align="none",
        draw_seconds=1e-6 * 120, shard_seconds=9.0,
    )  # fmt: skip
    job, _ = stores.jobs.create(
        kind="draws", claim=digest(spec.to_dict()), posterior="post_0", spec=spec.to_dict(), total=spec.total
    )
    for shard in range(spec.shards):
        tasks.draw(job.id, 0, shard)
    assert stores.jobs.fetch(job.id).status == "succeeded"
    keys = [replace(spec.key(0), index=index) for index in range(9)]
    assert stores.draws.contains("post_0", keys) == [False, False, *[True] * 5, False, False]
