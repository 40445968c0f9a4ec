"""Embeddings and comparisons over HTTP; tasks run in the test process, without workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle import Client
from glle_engine.base.errors import MissingLibraryError
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import Embedding as Places
from glle_engine.methods import method as method_of
from glle_engine.metrics.registry import default_scores, score
from tests.service.conftest import check_problem, csv_rows, upload
from tests.service.routes.embeddings.conftest import PCA, SHEET, N, embed
from tests.service.routes.posteriors.conftest import NPY, NPZ, npz, result_of
from worker.base.memory import INTERACTIVE_BYTES
from worker.base.problems import Problem
from worker.execution import context, tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from worker.stores import Stores


def compare(client: httpx.Client, dataset: str, *methods: dict[str, Any], **body: Any) -> httpx.Response:
    """Post a comparison."""
    return client.post("/v1/comparisons", json={"dataset": dataset, "methods": list(methods), "audit": False, **body})


def column(client: httpx.Client, values: Any) -> str:
    """Store a column and return its id."""
    return upload(client, np.asarray(values, float).reshape(-1, 1))


def test_embedding_is_the_engines_and_a_resource(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A job computes an embedding with scores; then the embedding has an id, and is equal in every form."""
    answer = embed(client, sheet, "lle", parameters={"n_neighbors": 12}, truth=sheet)
    link = answer.json()["links"]["embedding"]
    result = result_of(stores, answer)
    method = method_of("lle")
    direct = method.embed(SHEET.X, method.spec(n_neighbors=12))
    payload = client.get(result).json()
    assert np.array(payload["arrays"]["embedding"]["data"]).tobytes() == direct.Y.tobytes()
    assert payload["eigenvalues"] == pytest.approx(direct.eigenvalues)
    names = list(payload["scores"])
    assert {"trustworthiness"} <= set(names)
    assert payload["scores"] == pytest.approx(score(SHEET.X, direct.Y, names, truth=SHEET.coordinates))
    alone = client.get(link)
    assert alone.json()["parameters"] == {**method.spec().to_dict(), "n_neighbors": 12}
    assert {"id", "figures", "notes", "seconds"} <= set(alone.json())
    assert client.get(link, headers={"if-none-match": alone.headers["etag"]}).status_code == 304
    coordinates = alone.json()["links"]["coordinates"]
    whole = client.get(coordinates, headers=NPY)
    assert "immutable" in whole.headers["cache-control"]
    assert whole.content.endswith(direct.Y.tobytes())
    assert npz(client.get(coordinates, headers=NPZ))["embedding"].tobytes() == direct.Y.tobytes()
    selected = csv_rows(client.get(coordinates + "?points=3:5", headers={"accept": "text/csv"}))
    assert [list(row) for row in selected] == [["point", "embedding_1", "embedding_2"]] * 2
    assert [[float(row["embedding_1"]), float(row["embedding_2"])] for row in selected] == direct.Y[3:5].tolist()
    assert client.get(coordinates + "?points=0:1&dtype=float32").json()["arrays"]["embedding"]["dtype"] == "float32"


def test_a_known_embedding_is_returned_at_once(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A repeated request gets the same job, also with explicit defaults and an abbreviated method."""
    first = embed(client, sheet, "kernel-pca", scores=[])
    link = first.json()["links"]["embedding"]
    waiting = client.get(link + "?wait=0")
    assert (waiting.status_code, waiting.json()["id"]) == (202, first.json()["id"])
    result_of(stores, first)
    again = embed(client, sheet, "KPCA", scores=[], parameters={"n_components": 2})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    assert again.json()["request"]["method"] == "kernel-pca"
    other = embed(client, sheet, "kernel-pca", scores=[], parameters={"n_components": 1})
    assert other.json()["links"]["embedding"] != link
    result = result_of(stores, compare(client, sheet, {"method": "kpca"}, {"method": "PCA"}, scores=[]))
    rows_ = client.get(result).json()["rows"]
    assert [(row["label"], row["method"]) for row in rows_] == [("kernel-pca", "kernel-pca"), ("pca", "pca")]
    assert f"/v1/embeddings/{rows_[0]['embedding']}" == link


def test_scores_do_not_embed_twice(
    client: httpx.Client, stores: Stores, sheet: str, replace_method: Callable[..., None]
) -> None:
    """New scores of a cached embedding do not compute it again; its id is the same."""
    runs = []

    def run(*arguments: Any) -> Places:
        runs.append(arguments)
        return PCA.run(*arguments)

    replace_method("counted", run=run)
    first = embed(client, sheet, "counted", scores=["trustworthiness"])
    result_of(stores, first)
    second = embed(client, sheet, "counted", scores=["trustworthiness"], score_neighbors=5)
    assert second.json()["links"]["embedding"] == first.json()["links"]["embedding"]
    judged = client.get(result_of(stores, second)).json()
    assert judged["score_neighbors"] == 5
    result = result_of(stores, compare(client, sheet, {"method": "counted"}, {"method": "pca"}, scores=[]))
    assert client.get(result).json()["rows"][0]["embedding"] == judged["id"]
    assert len(runs) == 1


def test_an_embedding_is_202_until_it_is_computed(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """An embedding is 202 until its job has ended, then 200; a failed job is its problem."""
    answer = embed(client, sheet, scores=[])
    path = answer.json()["links"]["embedding"] + "/coordinates?wait=0"
    assert client.get(path, headers=NPY).json()["id"] == answer.json()["id"]
    result_of(stores, answer)
    assert client.get(path, headers=NPY).status_code == 200
    failing = embed(client, sheet, "lle", scores=[])
    stores.jobs.fail(
        failing.json()["id"], Problem(code="no-convergence", status=422, detail="It fails.", remedy="Retry.")
    )
    check_problem(client.get(failing.json()["links"]["embedding"] + "?wait=0"), 422, "no-convergence")
    of_job = client.get("/v1/embeddings/job_0")
    problem = check_problem(of_job, 404, "embedding-not-found")
    assert problem["remedy"] == "Give the id of an embedding: job_0 is the id of a job."


def test_an_embedding_requested_during_the_deletion_goes_with_its_job(
    client: httpx.Client, stores: Stores, sheet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embeddings are deleted before the record of their data, so that a killed deletion can be repeated."""
    waiting = embed(client, sheet, "isomap", scores=[]).json()["links"]["self"]
    answer = compare(client, sheet, {"method": "pca"}, {"method": "lle"}, scores=[])
    record = next(record for _, record in stores.embeddings.newest() if record and record.recipe.method == "pca")
    link = f"/v1/embeddings/{record.id}"
    with monkeypatch.context() as killed:
        killed.setattr(type(stores.datasets), "delete", None)
        assert client.delete(f"/v1/datasets/{sheet}").status_code == 500
    assert stores.datasets.exists(sheet)
    assert client.get(waiting).json()["status"] == "cancelled"
    assert stores.embeddings.ids_in(f"of:{sheet}") == []
    assert client.delete(f"/v1/datasets/{sheet}").status_code == 204
    stores.embeddings.request(record.recipe, record.claim)  # after the deletion has looked for records
    tasks.analyze(answer.json()["id"])
    assert stores.embeddings.ids_in(f"of:{sheet}") == []
    check_problem(client.get(link), 404, "embedding-not-found")


def test_refusals_precede_the_queue(client: httpx.Client, sheet: str) -> None:
    """The problem names the mistake and the remedy, and no job is created."""
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"method": "izomap"}, "invalid-parameter", "Did you mean isomap?"),
        ({"parameters": {"n_components": 0}}, "invalid-parameter", '"n_components": 0'),
        ({"parameters": {"n_components": "2"}}, "invalid-parameter", "n_components"),
        ({"parameters": {"n_components": 10**400}}, "invalid-parameter", "n_components"),
        ({"parameters": {"n_component": 2}}, "invalid-parameter", "n_component"),
        ({"parameters": {"n_components": 4}}, "invalid-parameter", "at most 3"),
        ({"method": "lle", "parameters": {"n_neighbors": N}}, "too-few-points", "n_neighbors"),
        ({"scores": ["beauty"]}, "invalid-parameter", "beauty"),
        ({"scores": ["procrustes"]}, "invalid-parameter", "truth"),
        ({"scores": [], "labels": sheet}, "invalid-shape", "column of integers"),
        ({"scores": [], "truth": sheet}, "invalid-parameter", "none of the chosen scores uses it"),
        ({"scores": ["trustworthiness"], "score_neighbors": 40}, "invalid-parameter", "at most 39"),
    ]
    for body, code, detail in cases:
        problem = check_problem(embed(client, sheet, **body), 422, code)
        assert detail in problem["detail"] + problem["remedy"]
    assert client.get("/v1/jobs").json()["items"] == []


def test_an_impossible_score_is_a_note(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """The embedding and the other scores exist; two components have no residual variance."""
    apart = upload(client, np.concatenate([SHEET.X, SHEET.X + 100]))
    result = result_of(stores, embed(client, apart, scores=["trustworthiness", "residual_variance"], score_neighbors=5))
    payload = client.get(result).json()
    assert set(payload["scores"]) == {"trustworthiness"}
    (note,) = [note for note in payload["notes"] if note["code"] == "no-score"]
    assert "residual_variance" in note["message"]
    assert "components" in note["message"]


def test_slow_scores_are_computed_on_request(client: httpx.Client, sheet: str) -> None:
    """By default only fast scores are computed, for data of any size; no score is computed beyond its limits."""
    large = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 2100}).json()["id"]
    expected = default_scores(set())
    assert "gplvm" not in expected
    assert [embed(client, data).json()["request"]["scores"] for data in (sheet, large)] == [expected, expected]
    check_problem(embed(client, large, scores=["gplvm"]), 422, "invalid-parameter")


def test_labels_are_a_column_or_uploaded_labels(
    client: httpx.Client, stores: Stores, sheet: str, replace_method: Callable[..., None]
) -> None:
    """Integer columns are unchanged, words of a data set are numbered in order, and other sizes are refused."""
    labels_of_runs = []

    def run(*arguments: Any) -> Places:
        labels_of_runs.append(arguments[3])
        return PCA.run(*arguments[:3])

    replace_method("supervised", labels=True, run=run)
    numbers = np.arange(N) % 3 - 1
    result_of(stores, embed(client, sheet, "supervised", labels=column(client, numbers), scores=[]))
    words = "\n".join(["x,kind", *(f"{i},{'ab'[i % 2]}" for i in range(N))])
    payload = client.post("/v1/datasets?labels=kind", content=words, headers={"content-type": "text/csv"}).json()
    result_of(stores, embed(client, sheet, "supervised", labels=payload["id"], scores=[]))
    assert [labels.tolist() for labels in labels_of_runs] == [numbers.tolist(), (np.arange(N) % 2).tolist()]
    check_problem(embed(client, sheet, "supervised"), 422, "invalid-parameter")
    check_problem(embed(client, sheet, "supervised", labels=column(client, [1, 2, 3])), 422, "invalid-shape")
    check_problem(embed(client, sheet, "supervised", labels="ds_none"), 404, "dataset-not-found")


def test_arrays_beyond_the_memory_of_a_task_are_refused(
    client: httpx.Client, sheet: str, replace_method: Callable[..., None]
) -> None:
    """The problem has the bytes that must be allocated, the limit, and the points that fit; time is not predicted."""
    replace_method("large", doubles=lambda _, n: 2**17 * n**2)
    for path, body in (("embeddings", {"method": "large"}), ("audits", {"method": "large"})):
        problem = check_problem(client.post(f"/v1/{path}", json={"dataset": sheet, **body}), 422, "too-much-memory")
        assert problem["details"] == {"least_bytes": 2**20 * N**2, "allowed_bytes": 2**31, "most_points": 45}
        assert f"{2**20 * N**2:,} bytes" in problem["detail"]
        assert problem["remedy"] == "Embed at most 45 points, or ask the administrator to raise GLLE_METHOD_BYTES."
    replace_method("full", doubles=lambda _, n: 2**40 * (n // N))
    assert check_problem(embed(client, sheet, "full"), 422, "too-much-memory")["details"]["most_points"] == N - 1
    replace_method("huge", doubles=lambda _, n: 2**40 * n)
    problem = check_problem(embed(client, sheet, "huge"), 422, "too-much-memory")
    assert (problem["remedy"], problem["details"]["most_points"]) == (
        "Ask the administrator to raise GLLE_METHOD_BYTES.",
        None,
    )


def test_what_cannot_end_in_time_begins_as_a_batch(
    client: httpx.Client, stores: Stores, sheet: str, replace_method: Callable[..., None]
) -> None:
    """A method that compiles, or needs more memory than an interactive task has, begins as a batch."""
    replace_method("compiled", compiles=True)
    replace_method("dense", doubles=lambda _, n: INTERACTIVE_BYTES // 8 // 80**2 * n**2)
    for name, priority in (("pca", "interactive"), ("compiled", "batch"), ("dense", "batch")):
        answer = embed(client, sheet, name, scores=[])
        assert answer.json()["priority"] == priority
        result_of(stores, answer)
        audit = client.post("/v1/audits?wait=0", json={"dataset": sheet, "method": name}).json()
        assert audit["priority"] == priority


def test_comparison_continues_after_failures(
    client: httpx.Client, stores: Stores, sheet: str, replace_method: Callable[..., None]
) -> None:
    """One row per method: refused by size or memory, failed, or an internal error; the others have scores."""

    def gone(*_: Any) -> Places:
        raise MissingLibraryError("It went away.", remedy="Bring it back.")

    def broken(*_: Any) -> Places:
        raise ZeroDivisionError

    replace_method("gone", run=gone)
    replace_method("broken", run=broken)
    replace_method("large", doubles=lambda _, n: 2**40 * n)
    methods: list[dict[str, Any]] = [{"method": name} for name in ("pca", "gone", "broken", "large")]
    methods.append({"method": "lle", "parameters": {"n_neighbors": N}})
    methods.append({"method": "lle", "label": "twelve", "parameters": {"n_neighbors": 12}})
    methods.append({"method": "pca", "parameters": {"n_components": 1}})
    result = result_of(stores, compare(client, sheet, *methods, scores=["trustworthiness"]))
    payload = client.get(result).json()
    rows = payload["rows"]
    assert [row["label"] for row in rows] == ["pca", "gone", "broken", "large", f"lle-{N}", "twelve", "pca-2"]
    codes = [row["problem"] and row["problem"]["type"].rpartition(":")[2] for row in rows]
    assert codes == [None, MissingLibraryError.code, "internal-error", "too-much-memory", "too-few-points", None, None]
    for row in rows:
        if row["problem"]:
            assert row["problem"]["remedy"]
            assert (row["embedding"], row["links"]) == (None, {})
        else:
            assert set(row["scores"]) >= {"trustworthiness"}
            assert row["seconds"]
            assert client.get(row["links"]["self"]).json()["id"] == row["embedding"]
    assert "arrays" not in payload


def test_comparison_aligned_for_display(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """The residual after the alignment to the first or the truth is the Procrustes disparity."""
    methods = ({"method": "pca"}, {"method": "lle", "parameters": {"n_neighbors": 12}})
    first = result_of(stores, compare(client, sheet, *methods, scores=[], align="first"))
    arrays = npz(client.get(first, headers=NPZ))
    direct = PCA.embed(SHEET.X).Y
    np.testing.assert_allclose(arrays["pca"], direct, atol=1e-12)
    left = np.linalg.norm(arrays["lle"] - direct) ** 2 / np.linalg.norm(direct) ** 2
    assert left == pytest.approx(disparity(arrays["lle"], direct))
    truth = result_of(stores, compare(client, sheet, *methods, scores=[], align="truth", truth=sheet))
    payload = client.get(truth).json()
    assert (payload["aligned_to"], set(payload["arrays"])) == ("truth", {"pca", "lle"})
    center = np.mean(payload["arrays"]["lle"]["data"], axis=0)
    np.testing.assert_allclose(center, SHEET.coordinates.mean(axis=0))
    table = csv_rows(client.get(truth + "?points=0:2", headers={"accept": "text/csv"}))
    assert list(table[0]) == ["point", "pca_1", "pca_2", "lle_1", "lle_2"]
    other = ({"method": "pca"}, {"method": "pca", "parameters": {"n_components": 1}})
    check_problem(compare(client, sheet, *other, align="first"), 422, "invalid-parameter")
    lines = (other[1], {"method": "lle", "parameters": {"n_components": 1}})
    refused = check_problem(compare(client, sheet, *lines, align="truth", truth=sheet), 422, "invalid-parameter")
    assert refused["detail"] == '"align": "truth" needs embeddings of equal dimensions, but they have 1, 2 dimensions.'
    assert compare(client, sheet, *lines, align="first", truth=sheet).status_code in {200, 202}
    check_problem(compare(client, sheet, *methods, align="truth"), 422, "invalid-request")


def test_invalid_comparisons_are_refused(client: httpx.Client, sheet: str) -> None:
    """An invalid name or parameter, no method, and equal labels are refused."""
    problem = check_problem(compare(client, sheet, {"method": "pca"}, {"method": "nope"}), 422, "invalid-parameter")
    assert problem["details"]["row"] == 1
    assert "methods.1" in problem["detail"]
    check_problem(compare(client, sheet), 422, "invalid-request")
    same = ({"method": "pca", "label": "a"}, {"method": "lle", "label": "a"})
    check_problem(compare(client, sheet, *same), 422, "invalid-request")


def test_comparison_reports_the_running_method_and_can_be_cancelled(
    client: httpx.Client,
    stores: Stores,
    sheet: str,
    replace_method: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stage names the method; a cancellation ends its iterations, and finished rows are kept."""
    monkeypatch.setattr(context, "PROGRESS_SECONDS", 0.0)
    stages: list[dict[str, Any]] = []

    def iterate(X: Any, spec: Any, on_progress: Any) -> Places:
        for iteration in range(100):
            on_progress(iteration, 100, "iterations")
            stages.append(client.get(path).json()["progress"])
            client.delete(path)
        return PCA.run(X, spec, on_progress)

    replace_method("endless", run=iterate)
    answer = compare(client, sheet, {"method": "pca"}, {"method": "endless"})
    path = answer.json()["links"]["self"]
    tasks.analyze(answer.json()["id"])
    assert client.get(path).json()["status"] == "cancelled"
    assert len(stages) == 1
    assert (stages[0]["done"], stages[0]["total"], stages[0]["stage"]) == (1, 2, "endless: iterations")
    assert embed(client, sheet, scores=[]).status_code == 202


def test_a_deleted_embedding_is_gone_with_its_results(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """Coordinates, scores and the job's result are 404; comparisons stay; a POST computes again."""
    body = {"dataset": sheet, "method": "pca", "scores": ["trustworthiness"]}
    queued = embed(client, sheet, "lle", scores=[]).json()
    assert client.delete(queued["links"]["embedding"]).status_code == 204
    assert client.get(queued["links"]["self"]).json()["status"] == "cancelled"
    posted = client.post("/v1/embeddings", json=body)
    result, path = result_of(stores, posted), posted.json()["links"]["embedding"]
    before = client.get(path + "/coordinates", headers=NPY).content
    compared = compare(client, sheet, {"method": "pca"}, {"method": "lle"}, scores=[])
    assert client.delete(path).status_code == 204  # during the comparison, which leaves no coordinates
    comparison = result_of(stores, compared)
    assert stores.results.ids_in(f"of:{path.rpartition('/')[2]}") == []
    for gone in (path, path + "/coordinates", result):
        check_problem(client.get(gone), 404, "embedding-not-found")
    check_problem(client.delete(path), 404, "embedding-not-found")
    rows = client.get(comparison).json()["rows"]
    assert [row["problem"] for row in rows] == [None, None]
    assert client.get(f"/v1/embeddings/{rows[1]['embedding']}").status_code == 200
    again = client.post("/v1/embeddings", json=body)
    result_of(stores, again)
    assert client.get(path + "/coordinates", headers=NPY).content == before


def test_embeddings_are_listed_with_their_names(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """Embeddings are listed by name and tags, the newest first; a new name does not change their description."""
    made = [embed(client, sheet, "pca", parameters={"n_components": p}, scores=[]) for p in (2, 1)]
    links = [answer.json()["links"]["embedding"] for answer in made]
    for answer in made:
        result_of(stores, answer)
    before = client.get(links[0])
    assert [item["links"]["self"] for item in client.get("/v1/embeddings").json()["items"]] == links[::-1]
    renamed = client.patch(links[0], json={"name": "first", "tags": ["study"]}).json()
    assert (renamed["name"], renamed["tags"]) == ("first", ["study"])
    page = client.get("/v1/embeddings?limit=1").json()
    for query in ("name=first&tag=study", f"limit=1&cursor={page['next']}"):
        assert [item["name"] for item in client.get(f"/v1/embeddings?{query}").json()["items"]] == ["first"]
    assert client.get(links[0]).content == before.content
    with Client(str(client.base_url), progress=False) as glle:
        assert [item["name"] for item in glle.embeddings(tag=["study"])] == ["first"]
