"""Calibrated scales over HTTP, and draws and summaries at `scale=auto`; tasks run in the test process."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from tests.service.routes.posteriors.conftest import (
    NPY,
    NPZ,
    N,
    check_problem,
    drawn,
    fitted,
    npz,
    result_of,
)

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores


def test_calibration(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The scale has its diagnostics; a summary at scale=auto has the calibration, too."""
    answer = client.post(posterior + "/calibration", json={"half_samples": 4, "draws": 6})
    result = client.get(result_of(stores, answer)).json()
    assert [result["scale"], result["ratio"]] in result["trace"]
    assert len(result["arrays"]["half_sample_spread"]["data"]) == len(result["arrays"]["draw_spread"]["data"])
    path = posterior + "/summary?count=4&resamples=4&scale=auto"
    result_of(stores, client.get(path + "&wait=0"))
    summary = client.get(path).json()
    assert summary["scale"] == summary["calibration"]["scale"]
    check_problem(client.get(posterior + "/summary?scale=automatic"), 422, "invalid-request")


def test_a_draw_at_auto_equals_the_draw_at_its_scale(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The first request calibrates; later ones are 200 with the scale in header and JSON, equal bits and ETag."""
    path = posterior + "/draws/2?seed=1&scale="
    drawn(stores, client.get(path + "auto&wait=0"))
    auto = client.get(path + "auto&wait=0")
    assert auto.status_code == 200
    scale = auto.json()["scale"]
    assert auto.headers["glle-scale"] == repr(scale)
    assert client.get(path + repr(scale)).json() == {k: v for k, v in auto.json().items() if k != "notes"}
    auto, number = (client.get(path + name + "&wait=0", headers=NPY) for name in ("auto", repr(scale)))
    assert (number.content, number.headers["etag"]) == (auto.content, auto.headers["etag"])
    cached = client.get(path + "auto", headers={**NPY, "if-none-match": number.headers["etag"]})
    assert (cached.status_code, cached.headers["glle-scale"]) == (304, repr(scale))
    assert client.get(path + "auto", headers=NPY).headers["glle-scale"] == repr(scale)
    again = client.get(posterior + "/draws/3?scale=auto&wait=0").json()
    assert again["request"]["scales"] == [scale], "calibrated once: another draw is asked for by the number"
    calibration = client.get(result_of(stores, client.post(posterior + "/calibration", json={}))).json()
    assert calibration["scale"] == scale
    summary = posterior + "/summary?count=4&resamples=4&seed=9&scale=auto"
    result_of(stores, client.get(summary + "&wait=0"))
    assert client.get(summary).headers["glle-scale"] == client.get(summary, headers=NPZ).headers["glle-scale"]
    assert client.get(summary).json()["scale"] == scale


def test_many_draws_at_auto(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """Auto can be one of several scales; each representation has every number."""
    first = client.post(posterior + "/draws", json={"count": 2, "scales": [0.5, "auto"]})
    assert first.json()["request"]["scales"] == [0.5, "auto"]
    result = drawn(stores, first)
    arrays = npz(client.get(result, headers=NPZ))
    scale = float(arrays["scales"][1])
    assert arrays["embeddings"].shape == (2, 2, N, 2)
    assert arrays["scales"].tolist() == [0.5, scale]
    payload = client.get(result)
    assert [draw["scale"] for draw in payload.json()["draws"]] == [0.5, 0.5, scale, scale]
    assert payload.headers["glle-scale"] == client.get(result, headers=NPY).headers["glle-scale"] == f"0.5, {scale!r}"
    single = np.load(io.BytesIO(client.get(f"{posterior}/draws/1?scale={scale!r}&wait=0", headers=NPY).content))
    assert single.tobytes() == arrays["embeddings"][1, 1].tobytes()
    stores.posteriors.delete(posterior.rpartition("/")[2])
    assert client.get(result).status_code == 202, "deleted with its posterior: to be made again"


def test_impossible_calibrations_are_refused_at_once(client: httpx.Client, stores: Stores) -> None:
    """Published posteriors, and data sets with too few points for halves."""
    published = fitted(client, variant="published")
    check_problem(client.post(published + "/calibration", json={}), 422, "invalid-parameter")
    check_problem(client.get(published + "/summary?scale=auto"), 422, "invalid-parameter")
    check_problem(client.get(published + "/draws/0?scale=auto"), 422, "invalid-parameter")
    check_problem(client.post(published + "/draws", json={"count": 1, "scale": "auto"}), 422, "invalid-parameter")


def test_auto_is_no_scale_of_the_prior(client: httpx.Client, posterior: str) -> None:
    """Half-sampling measures the posterior's spread; the prior needs a number."""
    for answer in (
        client.get(posterior + "/draws/0?scale=auto&source=prior"),
        client.get(posterior + "/summary?scale=auto&source=prior"),
        client.post(posterior + "/draws", json={"count": 1, "scales": [1, "auto"], "source": "prior"}),
    ):
        assert "not for the prior" in check_problem(answer, 422, "invalid-parameter")["detail"]
    check_problem(client.post(posterior + "/draws", json={"count": 1, "scale": "automatic"}), 422, "invalid-request")
    check_problem(client.get(posterior + "/draws/0?scale=automatic"), 422, "invalid-request")


def test_draws_at_a_doubtful_scale_say_so(client: httpx.Client, stores: Stores, posterior: str) -> None:
    """The codes are in a header of every representation and of a 304, JSON has the notes, and the values stay equal."""
    notes = [{"code": "scale-saturated", "message": "One."}, {"code": "scale-poorly-correlated", "message": "Two."}]
    codes = "scale-saturated, scale-poorly-correlated"
    stores.posteriors.calibrate(posterior.rpartition("/")[2], {"scale": 0.5, "notes": notes})
    path = posterior + "/draws/2?seed=1&scale="
    drawn(stores, client.get(path + "0.5&wait=0"))
    for headers in ({}, NPY, NPZ, {"accept": "text/csv"}):
        auto, number = (client.get(path + scale, headers=headers) for scale in ("auto", "0.5"))
        assert auto.headers["glle-notes"] == codes
        assert "glle-notes" not in number.headers
        assert (auto.content == number.content) == (auto.headers["etag"] == number.headers["etag"]) == bool(headers)
        again = client.get(path + "auto", headers={**headers, "if-none-match": auto.headers["etag"]})
        assert (again.status_code, again.headers["glle-notes"]) == (304, codes)
    auto, number = (client.get(path + scale).json() for scale in ("auto", "0.5"))
    assert auto == {**number, "notes": notes}
    result = drawn(stores, client.post(posterior + "/draws", json={"count": 2, "scale": "auto"}))
    assert client.get(result).json()["notes"] == notes
    assert client.get(result, headers=NPY).headers["glle-notes"] == codes
    assert client.get(result + "?partial=true", headers=NPY).headers["glle-notes"] == codes
    plain = drawn(stores, client.post(posterior + "/draws", json={"count": 2, "scale": 0.25}))
    assert "glle-notes" not in client.get(plain).headers
    assert "notes" not in client.get(plain).json()
