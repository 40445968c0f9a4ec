"""The summary by default: the ensemble of draws and resamples, where resamples can measure the posterior."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from service.submission.planning import COST_MARGIN, Allowance
from tests.conftest import in_turn
from tests.service.conftest import register_worker
from tests.service.routes.posteriors.conftest import NPZ, N, check_problem, fitted, npz, result_of
from worker.jobs.rq_types import BATCH
from worker.records.sharding import PER_BLOCK, resample_blocks

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

FEW = "/summary?count=8&resamples=4"


def slow(stores: Stores, posterior: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> PosteriorRecord:
    """Pretend that the fit of a posterior took so long; return its record."""
    record = replace(stores.posteriors.fetch(posterior.rpartition("/")[2]), seconds=seconds)
    monkeypatch.setattr("service.routes.analyses.require_posterior", lambda *_: record)
    return record


def test_the_default_is_the_ensemble(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """One result with and without scale=auto: parts, regions and reliability, in every format."""
    job = client.get(posterior + FEW + "&wait=0")
    assert client.get(posterior + FEW + "&wait=0&scale=auto").json()["id"] == job.json()["id"]
    assert job.json()["priority"] == "batch"
    assert stores.jobs.fetch(job.json()["id"]).total == 8 + 3 * 4
    result = result_of(stores, job)
    answer = client.get(posterior + FEW)
    summary = answer.json()
    assert summary == client.get(result).json()
    assert answer.headers["glle-scale"] == repr(summary["calibration"]["scale"])
    assert (summary["count"], summary["resamples"], summary["calibrated"]) == (8, 4, True)
    assert summary["reliability"]["level"] in {"high", "moderate", "low"}
    assert summary["reliability"]["reason"]
    arrays = npz(client.get(posterior + FEW, headers=NPZ))
    parts = [arrays[f"{name}_spread"] ** 2 for name in ("draw", "half_sample", "random_k", "larger_sample")]
    np.testing.assert_allclose(np.mean(parts, axis=0), arrays["spread"] ** 2)
    np.testing.assert_allclose(np.trace(arrays["covariance"], axis1=1, axis2=2), arrays["spread"] ** 2)
    axes = arrays["half_axes"]
    np.testing.assert_allclose(np.einsum("nja,njb->nab", axes, axes), arrays["covariance"], atol=1e-12)
    assert summary["regions"]["levels"] == [0.5, 0.9]
    assert 0 < summary["regions"]["radii"][0] < summary["regions"]["radii"][1]
    assert np.array(summary["arrays"]["center"]["data"]).tobytes() == arrays["center"].tobytes()
    header, *rows = client.get(posterior + FEW, headers={"accept": "text/csv"}).text.splitlines()
    assert {"spread", "draw_spread", "larger_sample_spread", "center_2", "half_axes_2_1"} <= set(header.split(","))
    assert len(rows) == N
    few = client.get(posterior + FEW + "&points=3:5").json()
    assert few["arrays"]["half_axes"]["data"] == axes[3:5].tolist()


def test_a_number_gives_the_draws_alone(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Another result, without regions; resamples have no meaning for it."""
    path = posterior + "/summary?count=8&scale=1"
    result_of(stores, client.get(path + "&wait=0"))
    summary = client.get(path).json()
    assert not {"resamples", "regions", "reliability", "calibration"} & set(summary)
    assert not {"draw_spread", "half_axes", "center"} & set(summary["arrays"])
    problem = check_problem(client.get(path + "&resamples=4"), 422, "invalid-parameter")
    assert "resamples=4" in problem["detail"]


def test_a_posterior_without_resamples_has_draws_at_scale_one(client: httpx.Client, stores: Stores) -> None:
    """The default of a published posterior, and of the prior, is that of scale 1, and a note says why."""
    published = fitted(client, variant="published")
    for path, reason in (
        (published + "/summary?count=4", "Only constrained posteriors"),
        (fitted(client) + "/summary?count=4&source=prior", "not for the prior"),
    ):
        job = client.get(path + "&wait=0")
        assert job.json()["id"] == client.get(path + "&scale=1&wait=0").json()["id"]
        result_of(stores, job)
        summary = client.get(path).json()
        assert summary["scale"] == 1.0
        (message,) = [note["message"] for note in summary["notes"] if note["code"] == "spread-of-draws"]
        assert reason in message
        check_problem(client.get(path + "&resamples=8"), 422, "invalid-parameter")
        check_problem(client.get(path + "&scale=auto"), 422, "invalid-parameter")


def test_too_few_or_too_many_are_refused(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Draws and resamples have a minimum, resamples a maximum; nothing is queued."""
    waiting = len(in_turn(stores))
    problem = check_problem(client.get(posterior + "/summary?count=3"), 422, "invalid-parameter")
    assert "count=3" in problem["detail"]
    assert "count >= 4" in problem["remedy"]
    for number in (3, 201):
        check_problem(client.get(f"{posterior}/summary?resamples={number}"), 422, "invalid-request")
    assert len(in_turn(stores)) == waiting


def test_an_ensemble_beyond_the_time_is_refused(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has the seconds, and a number of resamples that is accepted; cached ones cost nothing."""
    path = posterior + "/summary?count=8&wait=0"
    allowed = stores.settings.job_timeout / COST_MARGIN
    slow(stores, posterior, allowed / 40, monkeypatch)
    problem = check_problem(client.get(path), 422, "too-long")
    details: dict[str, Any] = problem["details"]
    assert details["expected_seconds"] > details["allowed_seconds"] == allowed
    most = details["most_resamples"]
    assert int(re.findall(r"resamples=(\d+)", problem["remedy"])[0]) == most
    check_problem(client.get(f"{path}&resamples={most + PER_BLOCK}"), 422, "too-long")
    assert client.get(f"{path}&resamples={most}").status_code == 202
    assert client.get(path + "&scale=1").status_code == 202, "the draws alone are no ensemble"
    record = stores.posteriors.fetch(posterior.rpartition("/")[2])
    for stream in range(3):
        for block in resample_blocks(stream, 0, 40)[1:]:
            stores.cache.put(block.cache_key(record.arrays_id), {}, {"embeddings": np.zeros((4, N, 2))})
    assert client.get(path).status_code == 202, "all but three blocks exist"
    slow(stores, posterior, 10 * allowed, monkeypatch)
    problem = check_problem(client.get(path + "&seed=1"), 422, "too-long")
    assert problem["details"]["most_resamples"] is None
    assert problem["remedy"].startswith("Give the scale as a number")


def test_all_live_workers_make_the_resamples(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is what they can do together; the job has its blocks as parts, and a picture is one worker's."""
    path = posterior + "/summary?count=8&wait=0"
    allowed = stores.settings.job_timeout / COST_MARGIN
    slow(stores, posterior, allowed / 40, monkeypatch)
    check_problem(client.get(path), 422, "too-long")
    for name in "abcd":
        register_worker(stores, name)
    job = stores.jobs.fetch(client.get(path).json()["id"])
    assert job.parts is not None
    assert (job.parts.stage, job.parts.total, job.parts.shards) == ("resamples", 120, 30)
    assert job.queue == BATCH
    assert f"{job.id}-r0-s0" in in_turn(stores)
    record = slow(stores, posterior, allowed / 20, monkeypatch)
    details = check_problem(client.get(path + "&seed=1"), 422, "too-long")["details"]
    assert details["workers"] == 4
    most = details["most_resamples"]
    assert client.get(f"{path}&seed=1&resamples={most}").status_code == 202
    monkeypatch.setattr("service.routes.pictures.require_posterior", lambda *_: record)
    check_problem(client.get(posterior + "/summary.png?count=8&seed=2&wait=0"), 422, "too-long")


def test_quick_resamples_are_one_task(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """They take no longer than a shard."""
    job = stores.jobs.fetch(client.get(posterior + FEW + "&wait=0").json()["id"])
    assert job.parts is None
    assert in_turn(stores)[-1] == f"{job.id}-r0"


def test_an_ensemble_beyond_the_memory_is_refused(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All embeddings are in memory to be aligned; the resamples must fit into the cache."""
    monkeypatch.setattr(Allowance, "of", lambda *_: Allowance(1e9, 2**16))
    problem = check_problem(client.get(posterior + "/summary?count=8"), 422, "too-much-memory")
    assert problem["details"]["expected_bytes"] > problem["details"]["allowed_bytes"]
    monkeypatch.setattr(stores.cache, "budget", 2**20)
    check_problem(client.get(posterior + "/summary?count=8&resamples=200"), 422, "cache-too-small")
