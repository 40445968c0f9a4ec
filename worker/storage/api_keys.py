"""API keys: bearer tokens that give a request its tenant and scopes. Only SHA-256 digests of secrets are stored.

An API process reads a key from Redis at most once a second, and again if a token has a secret that the process does not
know. A revoked key may therefore work for one more second. For `/metrics` it works until the process reaches the
queue's Redis again (`KeyStore.last_read`). Secrets have 32 random bytes, so they need no slow hash as passwords do.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import pydantic.dataclasses

from worker.base.clock import iso, now_iso, now_ms
from worker.base.problems import refuse
from worker.records.ids import KEY_ID_BYTES, KEY_PREFIX, is_tenant_name
from worker.records.stored_file import STORED
from worker.storage.records import KEYS, RecordKind, RecordStore

if TYPE_CHECKING:
    import redis

    from worker.storage.mark import RecordsMark

Scope = Literal["read", "write", "admin"]

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")  # each includes the ones before it
SECRET_BYTES = 32
KEY_CHECK_SECONDS = 1.0
_GONE = -math.inf  # time to read a key again that Redis no longer has
_NO_SECRET = hashlib.sha256(b"").hexdigest()  # compared for an unknown id, so that it takes as long as a wrong secret


@dataclass(frozen=True, kw_only=True)
class Secret:
    """SHA-256 of a secret, and its expiry (None: never)."""

    sha256: str
    until: str | None = None


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class Key:
    """Stored key; `scopes` includes implied scopes, and `secrets` includes replaced secrets until they expire."""

    id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    created: str
    expires: str | None
    secrets: tuple[Secret, ...]
    tags: list[str] = field(default_factory=list)  # always empty, because keys have no tags


KEY_KIND = RecordKind[Key]("key", "key", "See `glle keys list` for the ids.", Key, counts=lambda _: {KEYS: 1})


class KeyStore:
    """Keys of a deployment.

    Parameters
    ----------
    client
        The queue's Redis.
    mark
        The mark beside the files, which shows that keys existed even if Redis has lost them.

    Attributes
    ----------
    records
        The stored keys.

    """

    def __init__(self, client: redis.Redis, mark: RecordsMark) -> None:
        self.records = RecordStore(client, KEY_KIND)
        self._client = client
        self._mark = mark
        self._read: dict[str, tuple[Key, float]] = {}  # keys that were read, by id, and when to read each again
        self._is_guarded: bool | None = None  # whether a key ever existed; None: not read yet
        self._next_look = 0.0  # monotonic time of the next check whether a key exists

    def create(self, tenant: str, scopes: tuple[Scope, ...], name: str, days: float | None) -> tuple[Key, str]:
        """Create a key; return it with its bearer token, which is not stored.

        Parameters
        ----------
        days
            Lifetime; None: no expiry.

        Raises
        ------
        ProblemError
            ``invalid-tenant``.

        """
        if not is_tenant_name(tenant):
            remedy = "Use small letters, digits and hyphens, at most 40, a letter or digit first."
            raise refuse("invalid-tenant", 422, f"{tenant!r} is not the name of a tenant.", remedy)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        key = Key(
            id=secrets.token_hex(KEY_ID_BYTES),
            tenant=tenant,
            name=name,
            scopes=SCOPES[: max(SCOPES.index(scope) for scope in scopes) + 1],
            created=now_iso(),
            expires=None if days is None else _in(timedelta(days=days)),
            secrets=(_hash_secret(secret),),
        )
        self.records.create(key)
        self._is_guarded = True
        return key, _token(key, secret)

    def rotate(self, id_: str, overlap_hours: float) -> tuple[Key, str]:
        """Give a key a new secret; return the key with its new bearer token.

        Parameters
        ----------
        overlap_hours
            Hours for which the old secret stays valid.

        Raises
        ------
        ProblemError
            ``key-not-found``.

        """
        secret, until, now = secrets.token_urlsafe(SECRET_BYTES), _in(timedelta(hours=overlap_hours)), now_iso()

        def rotate_key(key: Key) -> Key:
            former = [replace(old, until=min(old.until or until, until)) for old in key.secrets]
            valid = [old for old in former if old.until is not None and old.until > now]
            return replace(key, secrets=(_hash_secret(secret), *valid))

        if (key := self.records.change(id_, rotate_key)) is None:
            raise KEY_KIND.not_found(id_)
        return key, _token(key, secret)

    def revoke(self, id_: str) -> Key:
        """Remove a key; return it.

        Raises
        ------
        ProblemError
            ``key-not-found``.

        """
        if (key := self.records.delete(id_)) is None:
            raise KEY_KIND.not_found(id_)
        return key

    def all(self) -> list[Key]:
        """Return the keys, the oldest first."""
        keys = {id_: KEY_KIND.load(id_, raw) for id_, raw in self.records.all()}
        return sorted(keys.values(), key=lambda key: (key.created, key.id))

    def count_admins(self) -> int:
        """Return the number of valid keys with the scope admin."""
        return sum("admin" in key.scopes and _is_valid(key.expires) for key in self.all())

    def has_keys(self) -> bool:
        """Return whether a key existed when this process last checked, or whether it has verified a key."""
        return bool(self._is_guarded)

    def exist(self) -> bool:
        """Return whether a key was ever created; asks Redis until the process knows of a key."""
        if not self._is_guarded and KEYS in self.records.usage():
            self._is_guarded = True
        return self.has_keys()

    def is_guarded(self) -> bool:
        """Return whether requests need a key, because a key ever existed, even if all keys are revoked now.

        Raises
        ------
        ProblemError
            One of `worker.storage.mark.LOSSES`: Redis has no key, and may have lost the keys. ``store-unavailable``.

        """
        now = time.monotonic()
        if self._is_guarded is None or (not self._is_guarded and now >= self._next_look):
            self._next_look = now + KEY_CHECK_SECONDS  # requests that arrive during the check get the former answer
            try:
                if not self.exist():
                    self._mark.require_no_loss()
                    self._is_guarded = False
            except BaseException:
                self._next_look = 0.0
                raise
        return self.has_keys()

    def is_current(self, token: str | None) -> bool:
        """Return whether what was read in the last second suffices to verify a request with or without a token."""
        now = time.monotonic()
        if self._is_guarded is None or (not self._is_guarded and now >= self._next_look):
            return False
        if not token:
            return True
        _, id_, secret = _parse_token(token)
        key, until = self._read.get(id_, (None, 0.0))
        sha256 = _hash_secret(secret).sha256
        return key is not None and now < until and any(hmac.compare_digest(s.sha256, sha256) for s in key.secrets)

    def last_read(self) -> KeyStore:
        """Return a store that answers with the keys as this process last read them; it reads only unknown keys."""
        store = KeyStore(self._client, self._mark)
        store._read = {id_: (key, math.inf) for id_, (key, _) in self._read.items()}
        store._is_guarded, store._next_look = self._is_guarded, math.inf
        return store

    def verify(self, token: str) -> Key:
        """Return the key of a bearer token.

        Raises
        ------
        ProblemError
            ``invalid-key``: unknown, revoked, replaced or expired. ``record-unreadable``. If the mark beside the files
            shows that Redis may have lost the key: as `is_guarded`.

        """
        key = self._match(token) or self._match(token, is_new=True)  # the secret may be newer than what was read
        if key is None:
            self._mark.require_no_loss()
            if self._read.get(id_ := _parse_token(token)[1], (None, 0.0))[1] == _GONE:
                self._read.pop(id_, None)
            remedy = "Use the whole key as `glle keys create` printed it, or ask the service's operator for another."
            raise refuse("invalid-key", 401, "The key is unknown, revoked or replaced.", remedy)
        self._is_guarded = True
        if not _is_valid(key.expires):
            remedy = "Ask the service's operator for a new key."
            raise refuse("invalid-key", 401, f"Key {key.id} expired at {key.expires}.", remedy, key=key.id)
        return key

    def _match(self, token: str, *, is_new: bool = False) -> Key | None:
        """Return the key of a token, or None; takes a time that does not depend on the secret."""
        prefix, id_, secret = _parse_token(token)
        key = self._look(id_, is_new=is_new) if prefix == KEY_PREFIX else None
        sha256, is_match = hashlib.sha256(secret.encode()).hexdigest(), False
        for stored in key.secrets if key is not None else (Secret(sha256=_NO_SECRET),):
            is_match |= hmac.compare_digest(stored.sha256, sha256) and _is_valid(stored.until)
        return key if is_match else None

    def _look(self, id_: str, *, is_new: bool) -> Key | None:
        """Return a key as it was read in the last second, or read it now; None if it does not exist."""
        key, until = self._read.get(id_, (None, 0.0))
        now = time.monotonic()
        if key is not None and now < until and not is_new:
            return key
        if key is not None:  # requests that arrive while it is read get the former key
            self._read[id_] = key, now + KEY_CHECK_SECONDS
        try:
            current = self.records.get(id_)
        except BaseException:
            if key is not None:
                self._read[id_] = key, 0.0
            raise
        if current is not None:
            self._read[id_] = current, now + KEY_CHECK_SECONDS
        elif key is not None:
            self._read[id_] = key, _GONE  # `verify` forgets it, unless the records are lost
        return current


def _hash_secret(secret: str) -> Secret:
    return Secret(sha256=hashlib.sha256(secret.encode()).hexdigest())


def _parse_token(token: str) -> tuple[str, str, str]:
    """Return the prefix, the id of the key, and the secret of a bearer token."""
    prefix, _, rest = token.partition("_")
    id_, _, secret = rest.partition("_")
    return prefix, id_, secret


def _token(key: Key, secret: str) -> str:
    return f"{KEY_PREFIX}_{key.id}_{secret}"


def _in(span: timedelta) -> str:
    return iso(now_ms() + span // timedelta(milliseconds=1))


def _is_valid(until: str | None) -> bool:
    return until is None or until > now_iso()
