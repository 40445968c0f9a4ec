"""Pictures over HTTP; tasks run in the test process, without workers."""

from __future__ import annotations

from importlib import util
from typing import TYPE_CHECKING, Any

import pytest

from glle_engine import manifolds
from tests.service.conftest import upload
from tests.service.routes.posteriors.conftest import fit_posterior
from worker.analyses import pictures
from worker.execution import tasks

if TYPE_CHECKING:
    import httpx


PNG, SVG = b"\x89PNG", b"<?xml"


@pytest.fixture
def posterior(client: httpx.Client) -> str:
    """The path of a fitted posterior."""
    return fit_posterior(client)


def get_picture(client: httpx.Client, path: str, **query: Any) -> httpx.Response:
    """Return a picture after its job."""
    parameters = {"wait": 0, **query}
    answer = client.get(path, params=parameters)
    if answer.status_code == 202:
        tasks.analyse(answer.json()["id"], 0)
        answer = client.get(path, params=parameters)
    return answer


@pytest.mark.parametrize(
    ("ending", "query", "media", "begins"),
    [
        ("/draws/7.png", {}, "image/png", PNG),
        ("/draws/7.svg", {"scale": 0.5, "theme": "dark", "color": "reference"}, "image/svg+xml", SVG),
        ("/draws.png", {"count": 2, "scales": [0.1, 10]}, "image/png", PNG),
        ("/summary.svg", {"count": 4, "scale": 1}, "image/svg+xml", SVG),
        ("/summary.svg", {"count": 4, "resamples": 4}, "image/svg+xml", SVG),
    ],
)
def test_pictures_of_draws_and_summaries(
    client: httpx.Client, posterior: str, ending: str, query: dict[str, Any], media: str, begins: bytes
) -> None:
    """The picture has its media type, is immutable, and is 304 for a matching ETag."""
    path = posterior + ending
    answer = get_picture(client, path, **query)
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0] == media
    assert answer.content.startswith(begins)
    assert "immutable" in answer.headers["cache-control"]
    again = client.get(path, params=query, headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    (job,) = client.get("/v1/jobs?kind=picture").json()["items"]
    assert client.get(f"/v1/jobs/{job['id']}/result").content == answer.content


@pytest.mark.parametrize(
    ("path", "query", "status", "type_"),
    [
        ("/draws/7.gif", {}, 422, "invalid-request"),
        ("/draws/x.png", {}, 422, "invalid-request"),
        ("/draws.png", {"count": 40, "scales": [1, 2]}, 422, "over-the-limit"),
        ("/draws.png", {"source": "other"}, 422, "invalid-request"),
        ("/draws/0.png", {"width": 50}, 422, "invalid-request"),
        ("/summary.png", {"count": 1}, 422, "invalid-request"),
        ("/summary.png", {"resamples": 4, "scale": 1}, 422, "invalid-parameter"),
        ("/draws/0.png", {"color": "label"}, 422, "no-such-color"),
        ("JOB", {}, 422, "no-picture"),
    ],
)
def test_impossible_pictures_are_refused(
    client: httpx.Client, posterior: str, path: str, query: dict[str, Any], status: int, type_: str
) -> None:
    """The problem names the remedy."""
    if path == "JOB":
        path = client.post(f"{posterior}/draws", json={"count": 2}).json()["links"]["self"] + "/result.png"
    answer = get_picture(client, path if path.startswith("/v1/") else posterior + path, **query)
    assert answer.status_code == status
    assert answer.json()["type"].endswith(type_)
    assert answer.json()["remedy"]


def test_the_default_colour_is_the_label(client: httpx.Client) -> None:
    """A picture by label differs from that by place, and is the one of auto."""
    X = manifolds.make("s_curve", 60, seed=2).X
    body = "kind,a,b,c\n" + "\n".join(f"k{i % 3},{x[0]},{x[1]},{x[2]}" for i, x in enumerate(X))
    payload = client.post("/v1/datasets?label=kind", content=body, headers={"content-type": "text/csv"}).json()
    job = client.post("/v1/posteriors", json={"dataset": payload["id"]}).json()
    tasks.fit(job["id"])
    path = job["links"]["posterior"] + "/draws/0.png"
    automatic, label, reference = (get_picture(client, path, color=c).content for c in ("auto", "label", "reference"))
    assert automatic == label != reference


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
    tasks.analyse(job["id"], 0)
    comparison = get_picture(client, f"/v1/jobs/{job['id']}/result.svg")
    assert comparison.content.startswith(SVG)
    rows = client.get(f"/v1/jobs/{job['id']}/result").json()["rows"]
    assert [row["problem"] is None for row in rows] == [True, True, True, False]
    assert get_picture(client, f"/v1/embeddings/{rows[0]['embedding']}.png").content.startswith(PNG)


def test_without_matplotlib_the_extra_is_named(
    client: httpx.Client, posterior: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra of matplotlib is optional."""
    real = util.find_spec
    monkeypatch.setattr(pictures, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    answer = client.get(f"{posterior}/draws/0.png")
    assert answer.json()["type"].endswith("missing-library")
    assert "glle-server[pictures]" in answer.json()["remedy"]
