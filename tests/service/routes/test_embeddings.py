"""Embeddings and comparisons over HTTP; the tasks run here, not in workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.base.errors import MissingLibraryError
from glle_engine.linalg.procrustes import disparity
from glle_engine.methods import METHODS, Cost
from glle_engine.methods import Embedding as Places
from glle_engine.methods import method as method_of
from glle_engine.metrics.registry import score
from tests.service.encoding.test_tables import rows
from tests.service.routes.test_analyses import NPY, NPZ, check, npz, worked
from tests.service.routes.test_resources import upload
from worker.execution import context, tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from worker.stores import Stores

N = 80
SHEET = manifolds.make("s_curve", N, seed=2)
PCA = METHODS["pca"]


@pytest.fixture(autouse=True)
def _here(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tasks use the app's stores."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)


@pytest.fixture
def sheet(client: httpx.Client) -> str:
    """A synthetic data set, which knows its truth."""
    body = {"name": "s_curve", "n": N, "seed": 2}
    return str(client.post("/v1/datasets/synthetic", json=body).json()["id"])


@pytest.fixture
def one_method(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a changed PCA into the registry, under a name."""

    def put(name: str, **changes: Any) -> None:
        monkeypatch.setitem(METHODS, name, replace(PCA, name=name, **changes))

    return put


def costing(seconds: Callable[[int], float], nbytes: Callable[[int], float] = float) -> Callable[..., Cost]:
    """Return the cost of a method by its number of points."""
    return lambda n, _d, _spec: Cost(seconds(n), nbytes(n))


def embed(client: httpx.Client, dataset: str, method: str = "pca", query: str = "", **body: Any) -> httpx.Response:
    """Ask for an embedding."""
    return client.post(f"/v1/embeddings{query}", json={"dataset": dataset, "method": method, **body})


def compare(client: httpx.Client, dataset: str, *methods: dict[str, Any], **body: Any) -> httpx.Response:
    """Ask for a comparison."""
    return client.post("/v1/comparisons", json={"dataset": dataset, "methods": list(methods), **body})


def column(client: httpx.Client, values: Any) -> str:
    """Store a column and return its id."""
    return upload(client, np.asarray(values, float).reshape(-1, 1))


def test_embedding_is_the_engines_and_a_resource(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A job makes it, with scores; the embedding is then there by its own id, the same in every form."""
    answer = embed(client, sheet, "lle", parameters={"n_neighbors": 12}, truth=sheet)
    link = answer.json()["links"]["embedding"]
    result = worked(stores, answer)
    one = method_of("lle")
    direct = one.embed(SHEET.X, one.spec(n_neighbors=12))
    payload = client.get(result).json()
    assert np.array(payload["arrays"]["embedding"]["data"]).tobytes() == direct.Y.tobytes()
    assert payload["eigenvalues"] == pytest.approx(direct.eigenvalues)
    names = list(payload["scores"])
    assert {"trustworthiness"} <= set(names)
    assert payload["scores"] == pytest.approx(score(SHEET.X, direct.Y, names, truth=SHEET.coordinates))
    alone = client.get(link)
    assert alone.json()["parameters"] == {**one.spec().to_dict(), "n_neighbors": 12}
    assert {"id", "figures", "notes", "seconds"} <= set(alone.json())
    assert client.get(link, headers={"if-none-match": alone.headers["etag"]}).status_code == 304
    coordinates = alone.json()["links"]["coordinates"]
    whole = client.get(coordinates, headers=NPY)
    assert "immutable" in whole.headers["cache-control"]
    assert whole.content.endswith(direct.Y.tobytes())
    assert npz(client.get(coordinates, headers=NPZ))["embedding"].tobytes() == direct.Y.tobytes()
    part = rows(client.get(coordinates + "?points=3:5", headers={"accept": "text/csv"}))
    assert [list(row) for row in part] == [["point", "embedding_1", "embedding_2"]] * 2
    assert [[float(row["embedding_1"]), float(row["embedding_2"])] for row in part] == direct.Y[3:5].tolist()
    assert client.get(coordinates + "?points=0:1&dtype=float32").json()["arrays"]["embedding"]["dtype"] == "float32"


def test_what_is_known_is_answered_at_once(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A repeat is 200 with the same job; parameters that are the defaults are the same request; others another id."""
    first = embed(client, sheet, scores=[])
    worked(stores, first)
    again = embed(client, sheet, scores=[], parameters={"n_components": 2})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    other = embed(client, sheet, scores=[], parameters={"n_components": 1})
    assert other.json()["links"]["embedding"] != first.json()["links"]["embedding"]


def test_scores_do_not_embed_twice(
    client: httpx.Client, stores: Stores, sheet: str, one_method: Callable[..., None]
) -> None:
    """An embedding that is there is judged anew, not made anew; its id is the same."""
    runs = []

    def run(*given: Any) -> Places:
        runs.append(given)
        return PCA.run(*given)

    one_method("counted", run=run)
    first = embed(client, sheet, "counted", scores=["trustworthiness"])
    worked(stores, first)
    second = embed(client, sheet, "counted", scores=["trustworthiness"], n_neighbors=5)
    assert second.json()["links"]["embedding"] == first.json()["links"]["embedding"]
    judged = client.get(worked(stores, second)).json()
    assert judged["n_neighbors"] == 5
    result = worked(stores, compare(client, sheet, {"method": "counted"}, {"method": "pca"}, scores=[]))
    assert client.get(result).json()["rows"][0]["embedding"] == judged["id"]
    assert len(runs) == 1


def test_evicted_embedding_is_made_again(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """A GET of an embedding that the cache lost is a job, then the same bits."""
    answer = embed(client, sheet, scores=["trustworthiness"])
    worked(stores, answer)
    path = answer.json()["links"]["embedding"] + "/coordinates?wait=0"
    before = client.get(path, headers=NPY).content
    stores.cache.client.flushall()
    again = client.get(path, headers=NPY)
    worked(stores, again)
    assert client.get(path, headers=NPY).content == before
    check(client.get("/v1/embeddings/emb_0"), 404, "embedding-not-found")


def test_embedding_goes_with_its_data_set(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """Once the data are deleted it is not there any more, and is not made again."""
    answer = embed(client, sheet, scores=[])
    worked(stores, answer)
    assert client.delete(f"/v1/datasets/{sheet}").status_code == 204
    check(client.get(answer.json()["links"]["embedding"]), 404, "dataset-not-found")


def test_a_job_of_a_method_that_went_is_still_told(
    client: httpx.Client, stores: Stores, sheet: str, one_method: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of jobs does not depend on the methods there are."""
    one_method("former")
    job = embed(client, sheet, "former", scores=[]).json()
    monkeypatch.delitem(METHODS, "former")
    assert client.get("/v1/jobs").json()["items"] == [job]
    assert stores.jobs.fetch(job["id"]).is_open


def test_get_waits_for_the_job_that_is_to_make_it(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """While it is queued the embedding is 202 with that very job, no second one."""
    answer = embed(client, sheet, scores=["trustworthiness"])
    waiting = client.get(answer.json()["links"]["embedding"] + "?wait=0")
    assert (waiting.status_code, waiting.json()["id"]) == (202, answer.json()["id"])
    worked(stores, answer)
    assert client.get(answer.json()["links"]["embedding"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({"method": "umap"}, "invalid-parameter", "umap"),
        ({"parameters": {"n_components": 0}}, "invalid-parameter", "n_components=0"),
        ({"parameters": {"n_components": "2"}}, "invalid-parameter", "n_components"),
        ({"parameters": {"n_components": 10**400}}, "invalid-parameter", "n_components"),
        ({"parameters": {"n_component": 2}}, "invalid-parameter", "n_component"),
        ({"parameters": {"n_components": 4}}, "invalid-parameter", "at most 3"),
        ({"method": "lle", "parameters": {"n_neighbors": N}}, "too-few-points", "n_neighbors"),
        ({"scores": ["beauty"]}, "invalid-parameter", "beauty"),
        ({"scores": ["procrustes"]}, "invalid-parameter", "truth"),
        ({"scores": [], "labels": "SELF"}, "invalid-shape", "column of integers"),
        ({"scores": [], "truth": "SELF"}, "invalid-parameter", "uses truth"),
        ({"scores": ["trustworthiness"], "n_neighbors": 40}, "invalid-parameter", "n_neighbors <= 39"),
    ],
)
def test_refused_before_anything_is_queued(
    client: httpx.Client, sheet: str, body: dict[str, Any], code: str, said: str
) -> None:
    """What is wrong is named, with the remedy, and no job is made."""
    body = {name: sheet if value == "SELF" else value for name, value in body.items()}
    answer = embed(client, sheet, **body)
    problem = check(answer, 422, code)
    assert said in problem["detail"] + problem["remedy"]
    assert client.get("/v1/jobs").json()["items"] == []


def test_a_score_that_cannot_be_made_is_a_note(client: httpx.Client, stores: Stores) -> None:
    """The embedding and the other scores are there; of two components there is no residual variance."""
    apart = upload(client, np.concatenate([SHEET.X, SHEET.X + 100]))
    result = worked(stores, embed(client, apart, scores=["trustworthiness", "residual_variance"], n_neighbors=5))
    payload = client.get(result).json()
    assert set(payload["scores"]) == {"trustworthiness"}
    (note,) = [note for note in payload["notes"] if note["code"] == "no-score"]
    assert "residual_variance" in note["message"]
    assert "components" in note["message"]


def test_long_scores_are_made_when_they_are_asked_for(client: httpx.Client, sheet: str) -> None:
    """Unasked only where they take a moment; never beyond what they can do."""
    large = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 2100}).json()["id"]
    assert "gplvm" in embed(client, sheet).json()["request"]["scores"]
    assert "gplvm" not in embed(client, large).json()["request"]["scores"]
    check(embed(client, large, scores=["gplvm"]), 422, "invalid-parameter")


def test_labels_are_a_column_or_what_was_uploaded_beside(
    client: httpx.Client, stores: Stores, sheet: str, one_method: Callable[..., None]
) -> None:
    """Integers of a column as they are; words kept with a data set numbered in their order; other sizes refused."""
    given = []

    def run(*arguments: Any) -> Places:
        given.append(arguments[3])
        return PCA.run(*arguments[:3])

    one_method("supervised", labels=True, run=run)
    numbers = np.arange(N) % 3 - 1
    worked(stores, embed(client, sheet, "supervised", labels=column(client, numbers), scores=[]))
    words = "\n".join(["x,kind", *(f"{i},{'ab'[i % 2]}" for i in range(N))])
    payload = client.post("/v1/datasets?label=kind", content=words, headers={"content-type": "text/csv"}).json()
    worked(stores, embed(client, sheet, "supervised", labels=payload["id"], scores=[]))
    assert [found.tolist() for found in given] == [numbers.tolist(), (np.arange(N) % 2).tolist()]
    check(embed(client, sheet, "supervised"), 422, "invalid-parameter")
    check(embed(client, sheet, "supervised", labels=column(client, [1, 2, 3])), 422, "invalid-shape")
    check(embed(client, sheet, "supervised", labels="ds_none"), 404, "dataset-not-found")


def test_what_would_not_finish_is_refused(client: httpx.Client, sheet: str, one_method: Callable[..., None]) -> None:
    """With seconds, growth, the possible size, and quicker methods; the same is reported by the estimate."""
    one_method("slow", cost=costing(lambda n: n**2), growth="n^2")
    problem = check(embed(client, sheet, "slow"), 422, "too-long")
    facts = problem["details"]
    assert (facts["expected_seconds"], facts["allowed_seconds"], facts["growth"]) == (N**2, 300, "n^2")
    assert (facts["most_points"], facts["quicker"][0]) == (17, "pca")
    assert "at most 17 points" in problem["remedy"]
    payload = client.post("/v1/embeddings/estimate", json={"dataset": sheet, "method": "slow"}).json()
    assert (payload["problem"]["type"], payload["most_points"], payload["seconds"]) == (problem["type"], 17, N**2)
    fine = client.post("/v1/embeddings/estimate", json={"n": 17, "d": 3, "method": "slow"}).json()
    assert (fine["problem"], fine["most_points"]) == (None, 17)
    check(embed(client, sheet, "slow", query="?deadline=1000"), 422, "too-long")
    one_method("quick", cost=costing(lambda _: 2.0))
    check(embed(client, sheet, "quick", query="?deadline=3"), 422, "too-long")
    assert embed(client, sheet, "quick", query="?deadline=5").status_code == 202


def test_what_takes_too_much_memory_is_refused(
    client: httpx.Client, sheet: str, one_method: Callable[..., None]
) -> None:
    """By a setting, with the size that would do."""
    one_method("large", cost=costing(lambda _: 1.0, lambda n: 2.0**20 * n**2))
    problem = check(embed(client, sheet, "large"), 422, "too-much-memory")
    assert (problem["details"]["most_points"], problem["details"]["allowed_bytes"]) == (45, 2**31)
    assert "GLLE_METHOD_BYTES" in problem["remedy"]


def test_estimate_tells_what_cannot_be(client: httpx.Client, sheet: str) -> None:
    """A refusal of the method itself is its problem; a request without a size, or with two, is invalid."""
    asked = {"method": "lle", "n": 5, "d": 3, "parameters": {"n_neighbors": 10}}
    payload = client.post("/v1/embeddings/estimate", json=asked).json()
    assert (payload["seconds"], payload["problem"]["type"]) == (None, "urn:glle:problem:too-few-points")
    for body in ({"method": "pca"}, {"method": "pca", "n": 5}, {"method": "pca", "n": 5, "d": 3, "dataset": sheet}):
        check(client.post("/v1/embeddings/estimate", json=body), 422, "invalid-request")


def test_comparison_goes_on_past_what_fails(
    client: httpx.Client, stores: Stores, sheet: str, one_method: Callable[..., None]
) -> None:
    """A row a method: refused by sizes, by cost, failed at work, or with an error of ours; the others have scores."""

    def gone(*_: Any) -> Places:
        raise MissingLibraryError("It went away.", remedy="Bring it back.")

    def broken(*_: Any) -> Places:
        raise ZeroDivisionError

    one_method("gone", run=gone)
    one_method("broken", run=broken)
    one_method("slow", cost=costing(lambda _: 1e6))
    result = worked(
        stores,
        compare(
            client,
            sheet,
            {"method": "pca"},
            {"method": "lle", "parameters": {"n_neighbors": N}},
            {"method": "gone"},
            {"method": "broken"},
            {"method": "slow"},
            {"method": "lle", "label": "twelve", "parameters": {"n_neighbors": 12}},
            {"method": "pca", "parameters": {"n_components": 1}},
            scores=["trustworthiness"],
        ),
    )
    payload = client.get(result).json()
    made = payload["rows"]
    assert [row["label"] for row in made] == ["pca", "lle", "gone", "broken", "slow", "twelve", "pca-2"]
    found = [row["problem"] and row["problem"]["type"].rpartition(":")[2] for row in made]
    failed = ["too-few-points", MissingLibraryError.code, "internal-error", "too-long"]
    assert found == [None, *failed, None, None]
    assert all(row["problem"]["remedy"] for row in made if row["problem"])
    for row in (made[0], made[5], made[6]):
        assert set(row["scores"]) >= {"trustworthiness"}
        assert row["seconds"]
        assert client.get(row["links"]["self"]).json()["id"] == row["embedding"]
    assert all((row["embedding"], row["links"]) == (None, {}) for row in made if row["problem"])
    assert "arrays" not in payload


def test_comparison_aligned_for_display(client: httpx.Client, stores: Stores, sheet: str) -> None:
    """To the first, or to the truth: what is left is the Procrustes disparity; other dimensions are refused."""
    methods = ({"method": "pca"}, {"method": "lle", "parameters": {"n_neighbors": 12}})
    first = worked(stores, compare(client, sheet, *methods, scores=[], align="first"))
    arrays = npz(client.get(first, headers=NPZ))
    direct = PCA.embed(SHEET.X).Y
    np.testing.assert_allclose(arrays["pca"], direct, atol=1e-12)
    left = np.linalg.norm(arrays["lle"] - direct) ** 2 / np.linalg.norm(direct) ** 2
    assert left == pytest.approx(disparity(arrays["lle"], direct))
    truth = worked(stores, compare(client, sheet, *methods, scores=[], align="truth", truth=sheet))
    payload = client.get(truth).json()
    assert (payload["aligned_to"], set(payload["arrays"])) == ("truth", {"pca", "lle"})
    centre = np.mean(payload["arrays"]["lle"]["data"], axis=0)
    np.testing.assert_allclose(centre, SHEET.coordinates.mean(axis=0))
    table = rows(client.get(truth + "?points=0:2", headers={"accept": "text/csv"}))
    assert list(table[0]) == ["point", "pca_1", "pca_2", "lle_1", "lle_2"]
    other = ({"method": "pca"}, {"method": "pca", "parameters": {"n_components": 1}})
    check(compare(client, sheet, *other, align="first"), 422, "invalid-parameter")
    check(compare(client, sheet, *methods, align="truth"), 422, "invalid-request")


def test_comparison_is_refused_for_what_is_wrong_with_the_request(
    client: httpx.Client, sheet: str, one_method: Callable[..., None]
) -> None:
    """A name or a parameter that is wrong, one method alone, equal labels, or all of them together too long."""
    problem = check(compare(client, sheet, {"method": "pca"}, {"method": "nope"}), 422, "invalid-parameter")
    assert problem["details"]["row"] == 1
    assert "methods.1" in problem["detail"]
    check(compare(client, sheet, {"method": "pca"}), 422, "invalid-request")
    same = ({"method": "pca", "label": "a"}, {"method": "lle", "label": "a"})
    check(compare(client, sheet, *same), 422, "invalid-request")
    one_method("long", cost=costing(lambda _: 200.0))
    longer = ({"method": "long"}, {"method": "long", "parameters": {"n_components": 1}})
    assert "together" in check(compare(client, sheet, *longer), 422, "too-long")["detail"]


def test_comparison_tells_which_method_is_at_work_and_is_cancelled_within_it(
    client: httpx.Client, stores: Stores, sheet: str, one_method: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage names the method; a cancel is heard between its iterations, and what was made is kept."""
    monkeypatch.setattr(context, "PROGRESS_SECONDS", 0.0)
    seen: list[dict[str, Any]] = []

    def iterate(X: Any, spec: Any, on_progress: Any) -> Places:
        for iteration in range(100):
            on_progress(iteration, 100, "iterations")
            seen.append(client.get(path).json()["progress"])
            client.delete(path)
        return PCA.run(X, spec, on_progress)

    one_method("endless", run=iterate)
    answer = compare(client, sheet, {"method": "pca"}, {"method": "endless"})
    path = answer.json()["links"]["self"]
    tasks.analyse(answer.json()["id"], 0)
    assert client.get(path).json()["status"] == "cancelled"
    assert len(seen) == 1
    assert (seen[0]["done"], seen[0]["total"], seen[0]["stage"]) == (1, 2, "endless: iterations")
    assert embed(client, sheet, scores=[]).status_code == 202
