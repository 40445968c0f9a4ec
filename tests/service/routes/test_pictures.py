"""Pictures over HTTP; tasks run in the test process, without workers."""

from __future__ import annotations

from importlib import util
from typing import TYPE_CHECKING, Any

from glle_engine import manifolds
from tests.service.conftest import check_problem, upload
from tests.service.routes.posteriors.conftest import fit_posterior
from worker.analyses import pictures
from worker.execution import tasks

if TYPE_CHECKING:
    import httpx
    import pytest


PNG, SVG = b"\x89PNG", b"<?xml"


def get_picture(client: httpx.Client, path: str, **query: Any) -> httpx.Response:
    """Return a picture after its job."""
    parameters = {"wait": 0, **query}
    answer = client.get(path, params=parameters)
    if answer.status_code == 202:
        tasks.analyse(answer.json()["id"])
        answer = client.get(path, params=parameters)
    return answer


def test_pictures_of_draws_and_summaries(client: httpx.Client) -> None:
    """The picture has its media type, is immutable, and is 304 for a matching ETag."""
    posterior = fit_posterior(client)
    cases: list[tuple[str, dict[str, Any], str, bytes]] = [
        ("/draws/7.svg", {"scale": 0.5, "theme": "dark", "colors": "reference"}, "image/svg+xml", SVG),
        ("/draws.png", {"n_draws": 2, "scales": [0.1, 10]}, "image/png", PNG),
        ("/summary.svg", {"n_draws": 4, "scale": 1}, "image/svg+xml", SVG),
        ("/summary.svg", {"n_draws": 4, "n_resamples": 4}, "image/svg+xml", SVG),
    ]
    for ending, query, media, begins in cases:
        path = posterior + ending
        answer = get_picture(client, path, **query)
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == media
        assert answer.content.startswith(begins)
        assert "immutable" in answer.headers["cache-control"]
        again = client.get(path, params=query, headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304
        job = client.get("/v1/jobs?kind=picture").json()["items"][0]
        assert client.get(f"/v1/jobs/{job['id']}/result").content == answer.content


def test_impossible_pictures_are_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem names the remedy; without matplotlib that is the extra."""
    posterior = fit_posterior(client)
    job = client.post(f"{posterior}/draws", json={"n_draws": 2}).json()["links"]["self"]
    cases: list[tuple[str, dict[str, Any], str]] = [
        (posterior + "/draws/7.gif", {}, "invalid-request"),
        (posterior + "/draws.png", {"n_draws": 40, "scales": [1, 2]}, "over-the-limit"),
        (posterior + "/draws/0.png", {"width": 50}, "invalid-request"),
        (posterior + "/summary.png", {"n_resamples": 4, "scale": 1}, "invalid-parameter"),
        (posterior + "/draws/0.png", {"colors": "labels"}, "no-such-color"),
        (job + "/result.png", {}, "no-picture"),
    ]
    for path, query, code in cases:
        assert check_problem(get_picture(client, path, **query), 422, code)["remedy"]
    real = util.find_spec
    monkeypatch.setattr(pictures, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    answer = client.get(posterior + "/draws/0.png")
    assert answer.json()["type"].endswith("missing-library")
    assert "glle-server[pictures]" in answer.json()["remedy"]


def test_the_default_colour_is_the_label(client: httpx.Client) -> None:
    """A picture by label differs from that by place, and is the one of auto."""
    X = manifolds.make("s_curve", 60, seed=2).X
    body = "kind,a,b,c\n" + "\n".join(f"k{i % 3},{x[0]},{x[1]},{x[2]}" for i, x in enumerate(X))
    payload = client.post("/v1/datasets?labels=kind", content=body, headers={"content-type": "text/csv"}).json()
    job = client.post("/v1/posteriors", json={"dataset": payload["id"]}).json()
    tasks.fit(job["id"])
    path = job["links"]["posterior"] + "/draws/0.png"
    automatic, labels, reference = (
        get_picture(client, path, colors=c).content for c in ("auto", "labels", "reference")
    )
    assert automatic == labels != reference


def test_pictures_of_embeddings_and_comparisons(client: httpx.Client) -> None:
    """Each embedding by its id; a comparison by its job, without its failed methods, which the picture names."""
    dataset = upload(client, manifolds.make("s_curve", 60, seed=2).X)
    methods = [
        {"method": "pca"},
        {"method": "lle"},
        {"method": "lle", "label": "far", "parameters": {"n_neighbors": 59}},
    ]
    methods.append({"method": "pca", "label": "too-many", "parameters": {"n_components": 4}})
    job = client.post("/v1/comparisons", json={"dataset": dataset, "methods": methods}).json()
    early = client.get(f"/v1/jobs/{job['id']}/result.png", params={"wait": 0})
    assert early.status_code == 202
    tasks.analyse(job["id"])
    comparison = get_picture(client, f"/v1/jobs/{job['id']}/result.svg")
    assert comparison.content.startswith(SVG)
    rows = client.get(f"/v1/jobs/{job['id']}/result").json()["rows"]
    assert [row["problem"] is None for row in rows] == [True, True, True, False]
    assert get_picture(client, f"/v1/embeddings/{rows[0]['embedding']}.png").content.startswith(PNG)
