"""Bearer keys: what is kept, what lets in, and for how long."""

from __future__ import annotations

import hashlib
import stat
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from worker.base.problems import ProblemError
from worker.tenancy import api_keys
from worker.tenancy.api_keys import KeyStore, Scope

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    """A store without keys."""
    return KeyStore(tmp_path / "data")


def refused(store: KeyStore, spoken: str) -> str:
    """Return why a bearer is not let in."""
    with pytest.raises(ProblemError) as caught:
        store.verify(spoken)
    assert caught.value.problem.status == 401
    return caught.value.problem.code


def test_a_key_lets_in_as_it_was_printed(store: KeyStore) -> None:
    """Nothing of it may be missing, changed, or added."""
    key, spoken = store.create("alice", ("read",), "her laptop", None)
    assert spoken.startswith(f"glle_{key.id}_")
    assert store.verify(spoken) == key
    assert (key.tenant, key.name, key.expires) == ("alice", "her laptop", None)
    _, other = store.create("alice", ("read",), "", None)
    crossed = f"glle_{key.id}_{other.split('_', 2)[2]}"
    for wrong in (spoken[:-1], spoken + "a", spoken.upper(), f"x{spoken}", crossed, f"glle_{key.id}_", "glle", "", "é"):
        assert refused(store, wrong) == "invalid-key"


def test_a_key_has_the_entropy_that_makes_a_plain_digest_enough(store: KeyStore) -> None:
    """32 random bytes, told in 43 characters, new each time."""
    secrets = {store.create("alice", ("read",), "", None)[1].split("_", 2)[2] for _ in range(20)}
    assert len(secrets) == 20
    assert all(len(secret) == 43 for secret in secrets)


def test_what_is_kept_is_a_digest_and_the_owners_alone(store: KeyStore, tmp_path: Path) -> None:
    """The file has no secret, its SHA-256 instead, and no one else may read it."""
    _, spoken = store.create("alice", ("read",), "", None)
    file = tmp_path / "data" / "keys.json"
    secret = spoken.split("_", 2)[2]
    assert secret not in file.read_text()
    assert hashlib.sha256(secret.encode()).hexdigest() in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["keys.json", "keys.lock"]


@pytest.mark.parametrize(
    ("asked", "had"),
    [
        (("read",), ("read",)),
        (("write",), ("read", "write")),
        (("read", "admin"), ("read", "write", "admin")),
    ],
)
def test_a_scope_includes_those_before_it(store: KeyStore, asked: tuple[Scope, ...], had: tuple[Scope, ...]) -> None:
    """Who writes may read, who administers may do both."""
    assert store.create("alice", asked, "", None)[0].scopes == had


@pytest.mark.parametrize("name", ["", "Alice", "a b", "a:b", "-a", "a" * 41, "../x", "ä"])
def test_a_tenant_has_a_plain_name(store: KeyStore, name: str) -> None:
    """It becomes part of Redis keys; what could break out of them is refused, and no key is made."""
    with pytest.raises(ProblemError) as caught:
        store.create(name, ("read",), "", None)
    assert caught.value.problem.code == "invalid-tenant"
    assert not store.has_key_file()


def test_a_revoked_key_lets_nobody_in_and_opens_nothing(store: KeyStore) -> None:
    """With the last key gone there is none, yet it is known that there was one."""
    assert not store.has_key_file()
    key, spoken = store.create("alice", ("read",), "", None)
    assert store.revoke(key.id) == key
    assert refused(store, spoken) == "invalid-key"
    assert store.all() == []
    assert store.has_key_file()
    for change in (lambda: store.revoke(key.id), lambda: store.rotate(key.id, 1)):
        with pytest.raises(ProblemError) as caught:
            change()
        assert caught.value.problem.code == "no-such-key"


def test_a_rotated_key_has_two_secrets_until_the_overlap_ends(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former one is good for so many hours, never for longer than it was, and is then forgotten."""
    clock = "2025-01-01T00:00:00.000Z"
    monkeypatch.setattr(api_keys, "now_iso", lambda: clock)
    monkeypatch.setattr(api_keys, "_in", lambda span: f"2025-01-01T{int(span.total_seconds()) // 3600:02}:00:00.000Z")
    key, first = store.create("alice", ("write",), "ci", None)
    rotated, second = store.rotate(key.id, 2)
    assert (rotated.id, rotated.tenant, rotated.scopes, rotated.name) == (key.id, "alice", ("read", "write"), "ci")
    assert store.verify(first) == store.verify(second) == rotated
    _, third = store.rotate(key.id, 20)
    clock = "2025-01-01T02:00:00.000Z"
    assert refused(store, first) == "invalid-key"
    assert store.verify(second) == store.verify(third)
    kept, _ = store.rotate(key.id, 23)
    assert [secret.until for secret in kept.secrets] == [None, "2025-01-01T23:00:00.000Z", "2025-01-01T20:00:00.000Z"]
    clock = "2025-01-01T23:00:00.000Z"
    assert refused(store, second) == refused(store, third) == "invalid-key"
    assert len(store.rotate(key.id, 2)[0].secrets) == 1


def test_rotation_without_overlap_ends_the_former_secret_at_once(store: KeyStore) -> None:
    """What leaked is worthless from that moment on."""
    key, first = store.create("alice", ("read",), "", None)
    _, second = store.rotate(key.id, 0)
    assert refused(store, first) == "invalid-key"
    assert store.verify(second).id == key.id


def test_an_expired_key_says_when(store: KeyStore) -> None:
    """A key whose days are over lets nobody in, one whose are not does."""
    _, spoken = store.create("alice", ("read",), "", 1)
    assert store.verify(spoken).expires is not None
    _, over = store.create("alice", ("read",), "", 0)
    with pytest.raises(ProblemError, match="expired at 20"):
        store.verify(over)


def test_another_process_sees_a_change_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is looked at again once the second is over, and not before; but for a key that is new, at once."""
    made, seen = KeyStore(tmp_path), KeyStore(tmp_path)
    now = 100.0
    monkeypatch.setattr("worker.tenancy.api_keys.time", SimpleNamespace(monotonic=lambda: now))
    key, spoken = made.create("alice", ("read",), "", None)
    assert seen.verify(spoken) == key
    rotated, second = made.rotate(key.id, 1)
    assert seen.verify(second) == rotated
    key = rotated
    made.revoke(key.id)
    now += api_keys.LOOK_SECONDS / 2
    assert seen.verify(spoken) == key
    now += api_keys.LOOK_SECONDS / 2
    assert refused(seen, spoken) == "invalid-key"


def test_two_changes_at_once_both_happen(tmp_path: Path) -> None:
    """However many make keys at the same time, all of them are there."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: KeyStore(tmp_path).create(f"t{n}", ("read",), "", None)[1], range(16)))
    store = KeyStore(tmp_path)
    assert {store.verify(spoken).tenant for spoken in made} == {f"t{n}" for n in range(16)}


@pytest.mark.parametrize("content", ["", "{", "[{}]", '[{"id": "x"}]', "3"])
def test_a_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path, content: str) -> None:
    """Keys that are there but not understood are a failure with a remedy, not the absence of keys."""
    (tmp_path / "keys.json").write_text(content)
    store = KeyStore(tmp_path)
    for look in (store.has_key_file, store.all, lambda: store.verify("glle_a_b")):
        with pytest.raises(ProblemError) as caught:
            look()
        assert (caught.value.problem.code, caught.value.problem.status) == ("keys-unreadable", 503)


def test_a_folder_that_cannot_be_written_is_a_clear_failure(tmp_path: Path) -> None:
    """Where no file can be, the remedy says whose folder it should be."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ProblemError) as caught:
        KeyStore(tmp_path / "data").create("alice", ("read",), "", None)
    assert caught.value.problem.code == "keys-unwritable"
    assert "GLLE_DATA_DIR" in caught.value.problem.remedy
