"""Names and tags of data sets and posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from service.submission import pagination
from tests.service.conftest import X, all_items, check_problem, upload

if TYPE_CHECKING:
    import httpx

MERGE_PATCH = {"content-type": "application/merge-patch+json"}


@pytest.fixture(params=["data set", "posterior"])
def path(client: httpx.Client, drawn_posterior: str, request: pytest.FixtureRequest) -> str:
    """The path of a data set or a posterior."""
    return drawn_posterior if request.param == "posterior" else f"/v1/datasets/{upload(client)}"


def patch_labels(client: httpx.Client, path: str, body: Any) -> tuple[str | None, list[str]]:
    """Return name and tags after a PATCH, which GET returns, too."""
    answer = client.patch(path, json=body)
    assert answer.status_code == 200, answer.text
    assert client.get(path).json() == answer.json()
    return answer.json()["name"], answer.json()["tags"]


def test_a_merge_patch_sets_keeps_and_removes(client: httpx.Client, path: str) -> None:
    """In a PATCH, absent members stay, null removes, and tags are replaced as a whole."""
    before = client.get(path).json()
    assert (before["name"], before["tags"]) == (None, [])
    assert patch_labels(client, path, {"name": "Köln 7"}) == ("Köln 7", [])
    assert patch_labels(client, path, {"tags": ["b", "a"]}) == ("Köln 7", ["b", "a"])
    assert patch_labels(client, path, {}) == ("Köln 7", ["b", "a"])
    assert patch_labels(client, path, {"name": None, "tags": ["c"]}) == (None, ["c"])
    assert patch_labels(client, path, {"tags": None}) == (None, [])
    assert client.get(path).json() == before


def test_a_change_with_an_old_etag_is_refused(client: httpx.Client, path: str) -> None:
    """If-Match names the ETag of GET or of the last PATCH, compressed or not; otherwise nothing changes."""
    first = client.get(path).headers["etag"]
    assert client.get(path, headers={"if-none-match": first}).status_code == 304
    changed = client.patch(path, json={"name": "one"}, headers={"if-match": f'"other", {first}'})
    assert (changed.status_code, changed.json()["name"]) == (200, "one")
    for old in (first, f"W/{changed.headers['etag']}"):
        problem = check_problem(
            client.patch(path, json={"name": "two"}, headers={"if-match": old}), 412, "changed-meanwhile"
        )
        assert problem["details"]["etag"].strip('"') == changed.headers["etag"].strip('"').removesuffix("-gzip")
    assert client.get(path).json()["name"] == "one"
    for current in (client.get(path).headers["etag"], "*"):
        assert client.patch(path, json={"name": "three"}, headers={"if-match": current}).status_code == 200
    assert client.patch(path, json={"name": None}).json()["name"] is None


def test_an_embedding_has_its_etag_by_an_empty_patch(client: httpx.Client) -> None:
    """Name and tags are no part of an embedding's description, so that an empty PATCH returns their ETag."""
    sheet = upload(client)
    body = {"dataset": sheet, "method": "pca", "scores": []}
    path = client.post("/v1/embeddings", json=body).json()["links"]["embedding"]
    tag = client.patch(path, json={}).headers["etag"]
    assert client.patch(path, json={"name": "one"}, headers={"if-match": tag}).status_code == 200
    check_problem(client.patch(path, json={"name": "two"}, headers={"if-match": tag}), 412, "changed-meanwhile")


def test_the_media_type_of_merge_patches(client: httpx.Client, path: str) -> None:
    """PATCH accepts application/merge-patch+json and JSON; other types and routes are 415."""
    answer = client.patch(path, content=b'{"name": "x"}', headers=MERGE_PATCH)
    assert (answer.status_code, answer.json()["name"]) == (200, "x")
    assert client.patch(path, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert client.post("/v1/audits", content=b"{}", headers=MERGE_PATCH).status_code == 415


INVALID: list[Any] = [
    {"name": ""}, {"name": " x"}, {"name": "a\nb"}, {"name": "x" * 201}, {"name": 3}, {"title": "x"}, [], "x",
    {"tags": "a"}, {"tags": [""]}, {"tags": ["x" * 51]}, {"tags": [f"t{i}" for i in range(21)]},
    {"tags": ["a", "a"]}, {"tags": [None]},
]  # fmt: skip


def test_invalid_names_are_refused(client: httpx.Client, path: str) -> None:
    """An invalid name or tag changes nothing."""
    patch_labels(client, path, {"name": "x" * 200, "tags": [f"{i:050}" for i in range(20)]})
    before = client.get(path).json()
    for body in INVALID:
        check_problem(client.patch(path, json=body), 422, "invalid-request")
    assert client.get(path).json() == before


def test_names_do_not_change_the_content(client: httpx.Client) -> None:
    """A repeated upload keeps the name, and its values keep their ETag."""
    path = f"/v1/datasets/{upload(client)}"
    tag = client.get(path + "/data").headers["etag"]
    patch_labels(client, path, {"name": "mine", "tags": ["a"]})
    assert f"/v1/datasets/{upload(client)}" == path
    assert (client.get(path).json()["name"], client.get(path + "/data").headers["etag"]) == ("mine", tag)


def test_lists_by_name_and_tags(client: httpx.Client, drawn_posterior: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are found by name and by tags, over pages that each look at a limited number of records."""
    monkeypatch.setattr(pagination, "MAX_READ_RECORDS", 1)
    ids = [upload(client, X + shift) for shift in range(4)]
    for id_, tags in zip(ids, (["a"], ["a", "b"], ["b"], []), strict=True):
        patch_labels(client, f"/v1/datasets/{id_}", {"name": "even" if id_ in ids[::2] else "odd", "tags": tags})

    def list_ids(query: str) -> set[str]:
        return {item["id"] for item in all_items(client, f"/v1/datasets?{query}", 1)}

    assert client.get("/v1/datasets?name=even&tag=a").json()["items"] == []
    assert list_ids("name=even&tag=a") == {ids[0]}
    assert list_ids("tag=a") == set(ids[:2])
    assert list_ids("tag=a&tag=b") == {ids[1]}
    assert list_ids("name=even&tag=b") == {ids[2]}
    assert list_ids("name=eve") == set()
    patch_labels(client, drawn_posterior, {"name": "p", "tags": ["x"]})
    for query, expected in (("tag=x&name=p", 1), ("tag=y", 0), ("", 1)):
        assert len(client.get(f"/v1/posteriors?{query}").json()["items"]) == expected
