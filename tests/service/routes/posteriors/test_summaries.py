"""The ensemble of draws and resamples, and calibrated scales, over HTTP; tasks run in the test process."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial.distance import cdist

from glle_engine.reliability.resamples import STREAMS
from service.submission.fit_planning import COST_MARGIN, Allowance
from tests.conftest import in_turn
from tests.service.conftest import check_problem, register_worker
from tests.service.routes.posteriors.conftest import NPY, NPZ, SHEET, N, fit_posterior, npz, result_of
from worker.analyses.resamples import PART, part_ranges, posterior_resamples
from worker.records.cache_entry import Entry
from worker.records.job import BATCH

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

FEW = "/summary?n_draws=8&n_resamples=4"


def fitted_in(seconds: float, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch) -> PosteriorRecord:
    """Pretend that the fit of a posterior took so long; return its record."""
    record = replace(stores.posteriors.fetch(posterior.rpartition("/")[2]), seconds=seconds)
    monkeypatch.setattr("service.routes.analyses.require_posterior", lambda *_: record)
    return record


def test_the_default_is_the_ensemble(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One result with and without scale=auto: parts, regions and reliability, in every format."""
    fitted_in(0.01, stores, posterior, monkeypatch)
    job = client.get(posterior + FEW + "&wait=0")
    assert client.get(posterior + FEW + "&wait=0&scale=auto").json()["id"] == job.json()["id"]
    assert job.json()["priority"] == "batch"
    record = stores.jobs.fetch(job.json()["id"])
    assert (record.total, record.parts, in_turn(stores)[-1]) == (8 + 3 * 4, None, record.id), "one quick task"
    result = result_of(stores, job)
    answer = client.get(posterior + FEW)
    summary = answer.json()
    assert summary == client.get(result).json()
    assert answer.headers["glle-scale"] == repr(summary["calibration"]["scale"])
    assert (summary["n_draws"], summary["n_resamples"], summary["calibrated"]) == (8, 4, True)
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


def test_a_posterior_without_resamples_has_draws_at_scale_one(client: httpx.Client, stores: Stores) -> None:
    """Calibrations and resamples are refused; the default summary is that of scale 1, and a note says why."""
    neighbors = np.argsort(cdist(SHEET, SHEET), axis=1)[:, :9]
    for path, source, reason in (
        (fit_posterior(client, variant="published"), {}, "Only constrained posteriors"),
        (fit_posterior(client, neighbors=neighbors), {}, "given neighbors"),
        (fit_posterior(client), {"source": "prior"}, "not for the prior"),
    ):
        answers = [
            client.get(path + "/draws/0", params={"scale": "auto", **source}),
            client.get(path + "/summary", params={"scale": "auto", **source}),
            client.get(path + "/summary", params={"n_resamples": 8, **source}),
            client.post(path + "/draws", json={"n_draws": 1, "scales": [1, "auto"], **source}),
        ]
        answers += [] if source else [client.post(path + "/calibration", json={})]
        for answer in answers:
            assert reason in check_problem(answer, 422, "invalid-parameter")["detail"]
        job, same = (
            client.get(path + "/summary", params={"n_draws": 4, "wait": 0, **source, **scale})
            for scale in ({}, {"scale": 1})
        )
        assert job.json()["id"] == same.json()["id"]
        summary = client.get(result_of(stores, job)).json()
        assert summary["scale"] == 1.0
        (message,) = [note["message"] for note in summary["notes"] if note["code"] == "spread-of-draws"]
        assert reason in message


def test_too_few_or_too_many_are_refused(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Draws and resamples have a minimum, resamples a maximum; nothing is queued."""
    waiting = len(in_turn(stores))
    problem = check_problem(client.get(posterior + "/summary?n_draws=3"), 422, "invalid-parameter")
    assert "n_draws=3" in problem["detail"]
    assert "n_draws >= 4" in problem["remedy"]
    problem = check_problem(client.get(posterior + "/summary?scale=1&n_resamples=4"), 422, "invalid-parameter")
    assert "n_resamples=4" in problem["detail"]
    for query in (
        "summary?n_resamples=3",
        "summary?n_resamples=201",
        "summary?scale=automatic",
        "draws/0?scale=automatic",
    ):
        check_problem(client.get(f"{posterior}/{query}"), 422, "invalid-request")
    check_problem(client.post(posterior + "/draws", json={"n_draws": 1, "scale": "automatic"}), 422, "invalid-request")
    assert len(in_turn(stores)) == waiting


def test_an_ensemble_beyond_the_time_is_refused(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of all live workers counts; the refusal has a number that is accepted; stored resamples cost nothing."""
    path = posterior + "/summary?n_draws=8&wait=0"
    allowed = stores.settings.job_timeout / COST_MARGIN
    fitted_in(allowed / 40, stores, posterior, monkeypatch)
    problem = check_problem(client.get(path), 422, "too-long")
    details: dict[str, Any] = problem["details"]
    assert details["expected_seconds"] > details["allowed_seconds"] == allowed
    most = details["most_resamples"]
    assert int(re.findall(r"n_resamples=(\d+)", problem["remedy"])[0]) == most
    check_problem(client.get(f"{path}&n_resamples={most + PART}"), 422, "too-long")
    assert client.get(f"{path}&n_resamples={most}").status_code == 202
    assert client.get(path + "&scale=1").status_code == 202, "the draws alone are no ensemble"
    record = stores.posteriors.fetch(posterior.rpartition("/")[2])
    for stream in STREAMS:
        for indices in part_ranges(40)[1:]:
            key = posterior_resamples(record.id, stream, 0).key(indices)
            part = Entry({"problems": []}, {"places": np.zeros((4, N, 2))})
            stores.results.put(key, part, owners=[record.id], job="job_1", tenant="default")
    assert client.get(path).status_code == 202, "all but three blocks exist"
    fitted_in(10 * allowed, stores, posterior, monkeypatch)
    path = posterior + "/summary?n_draws=8&wait=0&seed=1"
    problem = check_problem(client.get(path), 422, "too-long")
    assert problem["details"]["most_resamples"] is None
    assert problem["remedy"].startswith("Give the scale as a number")
    for name in "abcd":
        register_worker(stores, name)
    fitted_in(allowed / 40, stores, posterior, monkeypatch)
    job = stores.jobs.fetch(client.get(path).json()["id"])
    assert job.parts is not None
    assert (job.parts.stage, job.parts.total, job.parts.shards) == ("resamples", 120, 30)
    assert job.queue == BATCH
    assert f"{job.id}-s0" in in_turn(stores)
    fitted_in(allowed / 20, stores, posterior, monkeypatch)
    path = path.replace("seed=1", "seed=2")
    details = check_problem(client.get(path), 422, "too-long")["details"]
    assert details["workers"] == 4
    assert client.get(f"{path}&n_resamples={details['most_resamples']}").status_code == 202


def test_an_ensemble_beyond_the_memory_is_refused(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All embeddings are in memory to be aligned."""
    monkeypatch.setattr(Allowance, "from_settings", lambda *_: Allowance(1e9, 2**16))
    problem = check_problem(client.get(posterior + "/summary?n_draws=8"), 422, "too-much-memory")
    assert problem["details"]["expected_bytes"] > problem["details"]["allowed_bytes"]


def test_a_draw_at_auto_equals_the_draw_at_its_scale(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The first request calibrates; later ones are 200 with the scale in header and JSON, equal bits and ETag."""
    path = posterior + "/draws/2?seed=1&wait=0&scale="  # nothing waits for a sampler
    calibrating = client.get(path + "auto")
    assert calibrating.json()["kind"] == "calibration"
    result_of(stores, calibrating)
    result_of(stores, client.get(path + "auto"))  # the draw itself, without a sampler
    auto = client.get(path + "auto")
    assert auto.status_code == 200
    scale = auto.json()["scale"]
    assert auto.headers["glle-scale"] == repr(scale)
    assert client.get(path + repr(scale)).json() == {k: v for k, v in auto.json().items() if k != "notes"}
    auto, number = (client.get(path + name, headers=NPY) for name in ("auto", repr(scale)))
    assert (number.content, number.headers["etag"]) == (auto.content, auto.headers["etag"])
    cached = client.get(path + "auto", headers={**NPY, "if-none-match": number.headers["etag"]})
    assert (cached.status_code, cached.headers["glle-scale"]) == (304, repr(scale))
    assert client.get(path + "auto", headers=NPY).headers["glle-scale"] == repr(scale)
    again = client.get(posterior + "/draws/3?scale=auto&wait=0").json()
    assert again["request"]["scales"] == [scale], "calibrated once: another draw is asked for by the number"
    calibrated = client.post(posterior + "/calibration", json={})
    assert (calibrated.status_code, calibrated.json()["id"]) == (200, calibrating.json()["id"])
    calibration = client.get(calibrated.json()["links"]["self"] + "/result").json()
    assert calibration["scale"] == scale
    assert [scale, calibration["ratio"]] in calibration["trace"]
    assert len(calibration["arrays"]["half_sample_spread"]["data"]) == len(calibration["arrays"]["draw_spread"]["data"])
    summary = posterior + "/summary?n_draws=4&n_resamples=4&seed=9&scale=auto"
    result_of(stores, client.get(summary + "&wait=0"))
    answer = client.get(summary)
    assert answer.headers["glle-scale"] == client.get(summary, headers=NPZ).headers["glle-scale"]
    assert answer.json()["scale"] == answer.json()["calibration"]["scale"] == scale


def test_many_draws_at_auto(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Auto can be one of several scales; each representation has every number."""
    first = client.post(posterior + "/draws", json={"n_draws": 2, "scales": [0.5, "auto"]})
    assert first.json()["request"]["scales"] == [0.5, "auto"]
    result = result_of(stores, first)
    arrays = npz(client.get(result, headers=NPZ))
    scale = float(arrays["scales"][1])
    assert arrays["embeddings"].shape == (2, 2, N, 2)
    assert arrays["scales"].tolist() == [0.5, scale]
    payload = client.get(result)
    assert [draw["scale"] for draw in payload.json()["draws"]] == [0.5, 0.5, scale, scale]
    assert payload.headers["glle-scale"] == client.get(result, headers=NPY).headers["glle-scale"] == f"0.5, {scale!r}"
    path = f"{posterior}/draws/1?scale={scale!r}&wait=0"
    result_of(stores, client.get(path))
    single = np.load(io.BytesIO(client.get(path, headers=NPY).content))
    assert single.tobytes() == arrays["embeddings"][1, 1].tobytes()
    stores.posteriors.delete(posterior.rpartition("/")[2])
    check_problem(client.get(result), 404, "posterior-not-found")


def test_draws_at_a_doubtful_scale_say_so(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The codes are in a header of every representation and of a 304, JSON has the notes, and the values stay equal."""
    notes = [{"code": "scale-saturated", "message": "One."}, {"code": "scale-poorly-correlated", "message": "Two."}]
    codes = "scale-saturated, scale-poorly-correlated"
    stores.posteriors.calibrate(posterior.rpartition("/")[2], {"scale": 0.5, "notes": notes})
    path = posterior + "/draws/2?seed=1&wait=0&scale="  # nothing waits for a sampler
    result_of(stores, client.get(path + "0.5"))
    for headers in ({}, NPY, NPZ, {"accept": "text/csv"}):
        auto, number = (client.get(path + scale, headers=headers) for scale in ("auto", "0.5"))
        assert auto.headers["glle-notes"] == codes
        assert "glle-notes" not in number.headers
        assert (auto.content == number.content) == (auto.headers["etag"] == number.headers["etag"]) == bool(headers)
        again = client.get(path + "auto", headers={**headers, "if-none-match": auto.headers["etag"]})
        assert (again.status_code, again.headers["glle-notes"]) == (304, codes)
    auto, number = (client.get(path + scale).json() for scale in ("auto", "0.5"))
    assert auto == {**number, "notes": notes}
    result = result_of(stores, client.post(posterior + "/draws", json={"n_draws": 2, "scale": "auto"}))
    assert client.get(result).json()["notes"] == notes
    assert client.get(result, headers=NPY).headers["glle-notes"] == codes
    plain = result_of(stores, client.post(posterior + "/draws", json={"n_draws": 2, "scale": 0.25}))
    assert "glle-notes" not in client.get(plain).headers
    assert "notes" not in client.get(plain).json()
