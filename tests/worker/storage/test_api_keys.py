"""API keys: storage, verification, scopes, rotation and expiry."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import redis

from tests.conftest import refusal
from worker.base.problems import ProblemError
from worker.storage import api_keys
from worker.storage.api_keys import KeyStore

if TYPE_CHECKING:
    from worker.stores import Stores


@pytest.fixture
def store(stores: Stores) -> KeyStore:
    """Return a store without keys."""
    return stores.keys


def refusal_code(store: KeyStore, token: str) -> str:
    """Return the code of the problem with which a token is refused; assert that the status is 401."""
    problem = refusal(store.verify, token)
    assert problem.status == 401
    return problem.code


def test_a_token_authenticates_only_unchanged(store: KeyStore, stores: Stores) -> None:
    """A changed token is refused. The scope `write` includes `read`, and `admin` includes both.

    The secret has 32 random bytes, so that a SHA-256 is enough for the record.
    """
    key, token = store.create("alice", ("read",), "her laptop", None)
    assert token.startswith(f"glle_{key.id}_")
    assert store.verify(token) == key
    assert (key.tenant, key.name, key.expires) == ("alice", "her laptop", None)
    _, other = store.create("alice", ("read",), "", None)
    tokens = [store.create("alice", ("read", "admin"), "", None) for _ in range(20)]
    assert {other.scopes for other, _ in tokens} == {("read", "write", "admin")}
    assert store.create("alice", ("write",), "", None)[0].scopes == ("read", "write")
    secrets = {other.split("_", 2)[2] for _, other in tokens}
    assert (len(secrets), {len(secret) for secret in secrets}) == (20, {43})
    record, secret = str(stores.client.get(f"glle:key:{key.id}")), token.split("_", 2)[2]
    assert secret not in record
    assert hashlib.sha256(secret.encode()).hexdigest() in record
    crossed = f"glle_{key.id}_{other.split('_', 2)[2]}"
    for wrong in (token[:-1], token + "a", token.upper(), f"x{token}", crossed, f"glle_{key.id}_", "glle", "", "é"):
        assert refusal_code(store, wrong) == "invalid-key"


@pytest.mark.parametrize("name", ["", "Alice", "a b", "a:b", "-a", "a" * 41, "../x", "ä"])
def test_a_tenant_has_a_plain_name(store: KeyStore, name: str) -> None:
    """A name that could not be part of a Redis key is refused, and no key is created."""
    assert refusal(lambda: store.create(name, ("read",), "", None)).code == "invalid-tenant"
    assert not store.is_guarded()


def test_a_revoked_key_is_refused_and_the_service_stays_guarded(
    store: KeyStore, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all keys are revoked, requests still need a key; a process that knows this asks Redis no more."""
    assert not store.is_guarded()
    assert not store.exist()
    key, token = store.create("alice", ("read",), "", None)
    assert store.revoke(key.id) == key
    assert refusal_code(store, token) == "invalid-key"
    assert store.all() == []
    assert store.is_guarded()
    other = KeyStore(stores.client, stores.mark)
    assert other.exist()
    monkeypatch.setattr(other.records, "usage", None)
    assert other.exist()
    assert other.is_guarded()
    for change in (lambda: store.revoke(key.id), lambda: store.rotate(key.id, 1)):
        assert refusal(change).code == "key-not-found"


def test_a_rotated_key_has_two_secrets_until_the_overlap_ends(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old secret is valid until the end of the overlap, or of its own validity if that is earlier."""
    clock = "2025-01-01T00:00:00.000Z"
    monkeypatch.setattr(api_keys, "now_iso", lambda: clock)
    monkeypatch.setattr(api_keys, "_in", lambda span: f"2025-01-01T{int(span.total_seconds()) // 3600:02}:00:00.000Z")
    key, first = store.create("alice", ("write",), "ci", None)
    rotated, second = store.rotate(key.id, 2)
    assert (rotated.id, rotated.tenant, rotated.scopes, rotated.name) == (key.id, "alice", ("read", "write"), "ci")
    assert store.verify(first) == store.verify(second) == rotated
    _, third = store.rotate(key.id, 20)
    clock = "2025-01-01T02:00:00.000Z"
    assert refusal_code(store, first) == "invalid-key"
    assert store.verify(second) == store.verify(third)
    latest, _ = store.rotate(key.id, 23)
    assert [secret.until for secret in latest.secrets] == [None, "2025-01-01T23:00:00.000Z", "2025-01-01T20:00:00.000Z"]
    clock = "2025-01-01T23:00:00.000Z"
    assert refusal_code(store, second) == refusal_code(store, third) == "invalid-key"
    assert len(store.rotate(key.id, 2)[0].secrets) == 1
    leaked, first = store.create("alice", ("read",), "", None)
    _, second = store.rotate(leaked.id, 0)
    assert refusal_code(store, first) == "invalid-key", "without an overlap at once"
    assert store.verify(second).id == leaked.id


def test_an_expired_key_is_refused_with_its_date(store: KeyStore) -> None:
    """A key is accepted before its expiry, and later refused with the date."""
    _, token = store.create("alice", ("read",), "", 1)
    assert store.verify(token).expires is not None
    _, expired_token = store.create("alice", ("read",), "", 0)
    with pytest.raises(ProblemError, match="expired at 20"):
        store.verify(expired_token)


def test_another_process_sees_a_change_within_a_second(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process reads a key again after a second, or at once if a token has an unknown secret."""
    writer, reader = KeyStore(stores.client, stores.mark), KeyStore(stores.client, stores.mark)
    now = 100.0
    monkeypatch.setattr("worker.storage.api_keys.time", SimpleNamespace(monotonic=lambda: now))
    assert not reader.is_current(None), "nothing is read yet"
    assert not reader.is_guarded()
    assert reader.is_current(None)
    now += api_keys.KEY_CHECK_SECONDS
    assert not reader.is_current(None)
    key, token = writer.create("alice", ("read",), "", None)
    assert reader.verify(token) == key
    for spoken, is_current in ((token, True), (token[:-1], False), ("", True), ("glle_other_x", False)):
        assert reader.is_current(spoken) is is_current
    rotated, second = writer.rotate(key.id, 1)
    assert reader.verify(second) == rotated
    key = rotated
    writer.revoke(key.id)
    now += api_keys.KEY_CHECK_SECONDS / 2
    assert reader.verify(token) == key
    assert reader.is_current(second)
    now += api_keys.KEY_CHECK_SECONDS / 2
    assert not reader.is_current(second)
    assert refusal_code(reader, token) == "invalid-key"


def test_an_unreachable_server_authenticates_no_request(
    store: KeyStore, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Redis is away, keys that were read before are only accepted by the store of `last_read`."""
    monkeypatch.setattr(api_keys, "KEY_CHECK_SECONDS", 0.0)
    token, other = (store.create("alice", ("admin",), "", None)[1] for _ in range(2))
    assert store.is_guarded()
    key = store.verify(token)

    def fail(*_: object) -> None:
        raise redis.ConnectionError

    monkeypatch.setattr(stores.client, "get", fail)
    monkeypatch.setattr(stores.client, "hgetall", fail)
    for refused in (
        lambda: store.verify(token),
        lambda: store.last_read().verify(other),
        KeyStore(stores.client, stores.mark).is_guarded,
    ):
        with pytest.raises(redis.ConnectionError):
            refused()
    assert store.last_read().is_guarded()
    assert store.last_read().verify(token) == key
