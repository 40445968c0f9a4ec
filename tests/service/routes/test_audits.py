"""Audits over HTTP: a map by coordinates, an embedding, a posterior or a method; tasks run in the test process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from glle_engine import manifolds
from glle_engine.audit.audit import audit, audits
from glle_engine.base.texts import Text
from tests.service.conftest import check_problem, upload
from tests.service.routes.posteriors.conftest import NPZ, npz, result_of
from worker.execution import tasks

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

N = 60
ROLL = manifolds.make("s_curve", N, seed=2)


@pytest.fixture
def dataset(client: httpx.Client) -> str:
    """A data set of four features with two groups as labels."""
    X = np.column_stack([ROLL.X, ROLL.X[:, 0]])
    rows = "".join(f"{','.join(map(str, row))},{'ab'[int(row[0] > 0)]}\n" for row in X)
    answer = client.post("/v1/datasets?labels=y", content=f"q,r,s,t,y\n{rows}", headers={"content-type": "text/csv"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def run_audit(client: httpx.Client, stores: Stores, **body: Any) -> tuple[str, dict[str, Any]]:
    """Return path and JSON of the result of an audit."""
    place = result_of(stores, client.post("/v1/audits", json=body))
    return place, client.get(place).json()


def test_an_audit_is_that_of_the_engine(client: httpx.Client, stores: Stores, dataset: str) -> None:
    """The statements and arrays of an audited method are the engine's, in all formats."""
    place, result = run_audit(client, stores, dataset=dataset, method="pca", score_neighbors=8, seed=3)
    X = np.array(client.get(f"/v1/datasets/{dataset}/data").json()["data"])
    direct = audit(X, method="pca", labels=np.where(X[:, 0] > 0, "b", "a"), score_neighbors=8, seed=3)
    answers = ("islands", "arrangement", "neighborhoods", "shape", "tears")
    names = ("verdict", "level", "is_preliminary", "beyond_chance", "remains", "dimension", "pairs", *answers)
    stated = {name: result[name] for name in names}
    assert stated == {name: value for name, value in direct.to_dict().items() if name in stated}
    assert (result["groups"]["names"], result["method"]) == (["a", "b"], "pca")
    assert result["regions"]["new sample"]["radii"][0] > result["regions"]["mean"]["radii"][0]
    for name, array in direct.arrays().items():
        np.testing.assert_allclose(result["arrays"][name]["data"], array, rtol=1e-9, err_msg=name)
    arrays = npz(client.get(place, headers=NPZ))
    parts = [arrays[f"neighbors_{name}"] for name in ("data", "indices", "indptr")]
    assert direct.neighbors is not None
    assert abs(csr_array(tuple(parts), shape=(N, N)) - direct.neighbors).max() == 0
    header = client.get(place, headers={"accept": "text/csv"}).text.partition("\n")[0]
    assert header.startswith(
        "point,embedding_1,embedding_2,island,neighborhood,stretch,squeeze,is_torn,is_glued,seam,p_value"
    )
    assert len(client.get(f"{place}?points=2:5").json()["arrays"]["p_value"]["data"]) == 3


def test_space_and_blocks_are_those_of_the_engine(client: httpx.Client, stores: Stores) -> None:
    """Standardization, metric and blocks give the engine's statements, of a method with and without these parameters.

    A column is named in the verdict. Blocks are a column beside the features, or another data set.
    """
    subjects = np.arange(N) // 3
    X = np.column_stack([ROLL.X[:, 0], ROLL.X[:, 2], 30 * ROLL.X[:, 0]])
    rows = "".join(f"{','.join(map(str, row))},{subject}\n" for row, subject in zip(X, subjects, strict=True))
    answer = client.post("/v1/datasets?id=who", content=f"a,b,c,who\n{rows}", headers={"content-type": "text/csv"})
    dataset, names = answer.json()["id"], ["a", "b", "c"]
    places = ROLL.coordinates
    stored = upload(client, places)
    zscore: dict[str, Any] = {"standardize": "zscore"}
    cosine: dict[str, Any] = {"metric": "cosine", "standardize": "robust"}
    isomap: dict[str, Any] = {"method": "isomap", "parameters": {"n_neighbors": 12}}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"method": "pca", "blocks": "who"}, {"method": "pca", "blocks": subjects}),
        ({"method": "pca", "blocks": upload(client, subjects[:, None])}, {"method": "pca", "blocks": subjects}),
        ({"method": "pca", **zscore}, {"method": "pca", **zscore}),
        ({**isomap, **cosine}, {**isomap, **cosine}),
        ({"coordinates": stored, **cosine}, {"Y": places, **cosine}),
        ({"coordinates": stored, **isomap, **zscore}, {"Y": places, **isomap, **zscore}),
    ]
    for body, options in cases:
        _, result = run_audit(client, stores, dataset=dataset, score_neighbors=8, **body)
        direct = audit(X, names=names, score_neighbors=8, ids=subjects, id_names=["who"], **options)
        notes = [note.with_names(names).message for note in direct.notes]
        stated = ("verdict", "level", "pairs", "remains", "islands")
        assert {name: result[name] for name in stated} == {name: direct.to_dict()[name] for name in stated}, body
        assert [Text.from_json(note["message_parts"]) for note in result["notes"]] == notes, body
        assert (result["method"], result["blocks"]) == (body.get("method"), body.get("blocks"))
    assert "column 'c'" in audit(X, method="pca", blocks=subjects, names=names, score_neighbors=8).verdict
    of_method = client.post("/v1/audits", json={"dataset": dataset, "method": "isomap", **zscore}).json()
    as_parameter = client.post("/v1/audits", json={"dataset": dataset, "method": "isomap", "parameters": zscore}).json()
    assert of_method["id"] == as_parameter["id"]


def test_a_method_is_the_embedding(client: httpx.Client, stores: Stores, dataset: str) -> None:
    """An audited method makes an embedding; its audit is the same job, and ends with the embedding."""
    first = client.post("/v1/audits", json={"dataset": dataset, "method": "pca"}).json()
    result_of(stores, client.get(f"{first['links']['self']}/result"))
    embedding = first["links"]["embedding"].rpartition("/")[2]
    again = client.post("/v1/audits", json={"embedding": embedding})
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert client.delete(f"/v1/embeddings/{embedding}").status_code == 204
    check_problem(client.post("/v1/audits", json={"embedding": embedding}), 404, "embedding-not-found")
    assert stores.results.usage()["results"] == 0


def test_a_posterior(client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit of a posterior, and that of the method glle, are of the mean embedding, a map by the method itself."""
    monkeypatch.setattr("glle_engine.audit.conclusion._foreign", lambda *_: (0.1, 0.8))
    dataset = upload(client, ROLL.X)
    job = client.post("/v1/posteriors", json={"dataset": dataset, "n_neighbors": 8}).json()
    tasks.fit(job["id"])
    _, of_posterior = run_audit(client, stores, posterior=job["posterior"], score_neighbors=6)
    assert (of_posterior["method"], of_posterior["subject"]) == ("glle", job["posterior"])
    _, of_method = run_audit(
        client, stores, dataset=dataset, method="glle", parameters={"n_neighbors": 8}, score_neighbors=6
    )
    assert of_method["remains"] == pytest.approx(of_posterior["remains"], rel=1e-6)


def test_coordinates_alone(client: httpx.Client, stores: Stores, dataset: str) -> None:
    """Coordinates of a data set have fidelity, islands and tears; stored and inline ones share one job."""
    rows = ROLL.coordinates.round(3)
    place, result = run_audit(client, stores, dataset=dataset, coordinates=rows.tolist())
    again = client.post("/v1/audits", json={"dataset": dataset, "coordinates": upload(client, rows)})
    assert again.json()["links"]["self"] + "/result" == place
    assert (result["remains"], result["method"], result["groups"]) == (None, None, None)
    assert result["level"] == "unknown"
    assert result["islands"]["in_samples"] is None
    assert set(result["arrays"]) == {"embedding", "island", "stretch", "squeeze", "is_torn", "is_glued", "seam"}
    np.testing.assert_array_equal(result["arrays"]["embedding"]["data"], rows)
    assert client.get(place.removesuffix("/result")).json()["links"].get("dataset") == f"/v1/datasets/{dataset}"


def test_the_latest_statement_is_a_partial_result(
    client: httpx.Client, stores: Stores, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the job runs, a client reads the statements of the audit so far, which no cache may store."""
    job = client.post("/v1/audits", json={"dataset": dataset, "method": "pca"}).json()
    partial = f"{job['links']['self']}/result?partial=true"
    assert client.get(partial).status_code == 202
    seen = []

    def read_between(*args: Any, **options: Any) -> Any:
        for stage in audits(*args, **options):
            yield stage
            seen.append(client.get(partial))
            assert client.get(f"{job['links']['self']}/result").status_code == 202

    monkeypatch.setattr("glle_engine.audit.audit.audits", read_between)
    final = client.get(result_of(stores, client.get(job["links"]["self"] + "/result")))
    assert seen[0].status_code == 200
    assert seen[0].headers["cache-control"] == "no-store"
    assert seen[0].json()["verdict"]
    assert seen[-1].json() == final.json()
    assert "immutable" in client.get(partial).headers["cache-control"]


def test_refusals(client: httpx.Client, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be audited, or not in time, is refused before it is queued, with the remedy."""
    job = client.post("/v1/audits", json={"dataset": dataset, "method": "pca"}).json()
    embedding = job["links"]["embedding"].rpartition("/")[2]
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({}, 422, "invalid-request"),
        ({"dataset": dataset, "coordinates": dataset, "embedding": embedding}, 422, "invalid-request"),
        ({"method": "pca"}, 422, "invalid-request"),
        ({"dataset": dataset, "coordinates": [[1, 2]], "parameters": {"n": 1}}, 422, "invalid-request"),
        ({"dataset": dataset, "coordinates": [[1.0, 2.0]]}, 422, "invalid-shape"),
        ({"dataset": dataset, "coordinates": "ds_none"}, 404, "dataset-not-found"),
        ({"embedding": "emb_none"}, 404, "embedding-not-found"),
        ({"posterior": "post_none"}, 404, "posterior-not-found"),
        ({"dataset": dataset, "method": "no-such"}, 422, "invalid-parameter"),
        ({"dataset": dataset, "method": "pca", "score_neighbors": 59}, 422, "invalid-parameter"),
        ({"dataset": dataset, "method": "supervised-lle"}, 422, "invalid-parameter"),
        ({"dataset": dataset, "method": "pca", "metric": "none"}, 422, "invalid-request"),
        ({"dataset": dataset, "method": "pca", "blocks": "who"}, 422, "invalid-parameter"),
        ({"dataset": dataset, "method": "pca", "blocks": "ds_none"}, 404, "dataset-not-found"),
        ({"dataset": dataset, "method": "pca", "blocks": upload(client, np.eye(7))}, 422, "invalid-shape"),
        ({"embedding": embedding, "standardize": "zscore"}, 422, "invalid-parameter"),
    ]
    for body, status, code in cases:
        assert check_problem(client.post("/v1/audits", json=body), status, code)["remedy"], body
    feature = client.post("/v1/audits", json={"dataset": dataset, "method": "pca", "blocks": "q"}).json()
    assert feature["detail"] == '"blocks": "q" is a feature of the data.'
    assert "?id=q" in feature["remedy"]


def test_a_worker_audits_in_one_thread(
    client: httpx.Client, stores: Stores, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several workers share the processors, and each reports one thread."""
    monkeypatch.setattr("glle_engine.audit.options.ThreadPoolExecutor", None)
    assert run_audit(client, stores, dataset=dataset, method="pca")[1]["verdict"]
