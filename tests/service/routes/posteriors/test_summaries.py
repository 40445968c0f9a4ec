"""Summaries and calibrated scales over HTTP; tasks run in the test process."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist

from glle_engine.base.texts import Note
from tests.conftest import in_turn
from tests.service.conftest import check_problem
from tests.service.routes.posteriors.conftest import NPY, NPZ, SHEET, N, fit_posterior, npz, result_of
from worker.base.problems import notes_in_http
from worker.records.job import BATCH

if TYPE_CHECKING:
    import httpx
    import pytest

    from worker.storage.posteriors import PosteriorRecord
    from worker.stores import Stores

FEW = "/summary?n_draws=8"


def fitted_in(seconds: float, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch) -> PosteriorRecord:
    """Pretend that the fit of a posterior took so long; return its record."""
    record = replace(stores.posteriors.fetch(posterior.rpartition("/")[2]), seconds=seconds)
    monkeypatch.setattr("service.routes.analyses.require_posterior", lambda *_: record)
    return record


def test_the_default_scale_is_the_calibrated_one(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One result with and without scale=auto, in every format."""
    fitted_in(0.01, stores, posterior, monkeypatch)
    job = client.get(posterior + FEW + "&wait=0")
    assert client.get(posterior + FEW + "&wait=0&scale=auto").json()["id"] == job.json()["id"]
    assert job.json()["priority"] == "batch"
    record = stores.jobs.fetch(job.json()["id"])
    assert (record.total, record.parts, in_turn(stores)[-1]) == (8, None, record.id), "one quick task"
    result = result_of(stores, job)
    answer = client.get(posterior + FEW)
    summary = answer.json()
    assert summary == client.get(result).json()
    assert answer.headers["glle-scale"] == repr(summary["calibration"]["scale"])
    assert (summary["n_draws"], summary["calibrated"]) == (8, True)
    arrays = npz(client.get(posterior + FEW, headers=NPZ))
    np.testing.assert_allclose(np.trace(arrays["covariance"], axis1=1, axis2=2), arrays["spread"] ** 2)
    header, *rows = client.get(posterior + FEW, headers={"accept": "text/csv"}).text.splitlines()
    assert {"spread", "half_sample_spread", "consensus_2", "covariance_2_1"} <= set(header.split(","))
    assert len(rows) == N
    few = client.get(posterior + FEW + "&points=3:5").json()
    assert few["arrays"]["spread"]["data"] == arrays["spread"][3:5].tolist()


def test_halves_of_a_long_fit_are_shared(
    client: httpx.Client, stores: Stores, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers compute the halves for the calibration; after it, a summary is one task."""
    fitted_in(30, stores, posterior, monkeypatch)
    job = stores.jobs.fetch(client.get(posterior + FEW + "&wait=0").json()["id"])
    assert job.parts is not None
    assert (job.parts.stage, job.parts.total, job.parts.shards, job.queue) == ("half-samples", 20, 5, BATCH)
    stores.posteriors.calibrate(posterior.rpartition("/")[2], {"scale": 0.5, "notes": []})
    assert stores.jobs.fetch(client.get(posterior + "/summary?n_draws=9&wait=0").json()["id"]).parts is None


def test_a_posterior_without_resamples_has_draws_at_scale_one(client: httpx.Client, stores: Stores) -> None:
    """Calibrations and resamples are refused; the default summary is that of scale 1, and a note says why."""
    neighbors = np.argsort(cdist(SHEET, SHEET), axis=1)[:, :9]
    for path, source, reason in (
        (fit_posterior(client, variant="published"), {}, "Only constrained posteriors"),
        (fit_posterior(client, neighbors=neighbors), {}, "you gave the neighbors"),
        (fit_posterior(client), {"source": "prior"}, "not for the prior"),
    ):
        answers = [
            client.get(path + "/draws/0", params={"scale": "auto", **source}),
            client.get(path + "/summary", params={"scale": "auto", **source}),
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
        (message,) = [note["message"] for note in summary["notes"] if note["code"] == "not-calibrated"]
        assert reason in message


def test_bad_scales_and_numbers_are_refused(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Invalid scales and numbers of draws are refused, and nothing is queued."""
    waiting = len(in_turn(stores))
    for query in ("summary?n_draws=1", "summary?scale=automatic", "draws/0?scale=automatic"):
        check_problem(client.get(f"{posterior}/{query}"), 422, "invalid-request")
    check_problem(client.post(posterior + "/draws", json={"n_draws": 1, "scale": "automatic"}), 422, "invalid-request")
    assert len(in_turn(stores)) == waiting


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
    summary = posterior + "/summary?n_draws=4&seed=9&scale=auto"
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
    notes = notes_in_http([Note("scale-saturated", "One."), Note("scale-poorly-correlated", "Two.")])
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
