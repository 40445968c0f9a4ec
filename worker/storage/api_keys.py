"""API keys: bearer tokens that give a request its tenant and scopes. Only SHA-256 digests of secrets are stored.

An API process reads a key from Redis at most once a second, and again if a token has a secret that the process does not
know. A revoked key may therefore work for one more second. While Redis does not answer, `/metrics` accepts the keys as
they were last read, even if they were revoked since (`KeyStore.last_read`). Secrets have 32 random bytes, so they need
no slow hash, as passwords would.
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

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")  # each scope includes the scopes before it
SECRET_BYTES = 32
KEY_CHECK_SECONDS = 1.0  # a process reads a key from Redis again when it was read longer ago than this
_GONE = -math.inf  # marks a key that Redis no longer has, in the place of the time to read the key again
# Compared if the id of a key is unknown, so that the check takes as long as for a wrong secret.
_NO_SECRET = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, kw_only=True)
class Secret:
    """The SHA-256 of the secret part of a token, and the time until which it is valid (ISO; None: no end)."""

    sha256: str
    until: str | None = None


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=STORED)
class Key:
    """Record of an API key.

    Parameters
    ----------
    scopes
        What the key allows; with a scope, the record also has the scopes that this scope includes.
    secrets
        The valid secret and, until they expire, the secrets that it has replaced.

    """

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
    """Store of the API keys, which also checks the token of a request.

    Parameters
    ----------
    client
        The queue's Redis.
    mark
        The mark, a small file beside the stored files, which shows that API keys existed even if Redis has lost them.

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
        self._is_guarded: bool | None = None  # whether a key was ever created; None: not checked yet
        self._next_look = 0.0  # monotonic time of the next check whether a key was ever created

    def create(self, tenant: str, scopes: tuple[Scope, ...], name: str, days: float | None) -> tuple[Key, str]:
        """Create a key; return its record, and the bearer token, which is not stored and cannot be read again.

        Parameters
        ----------
        days
            Lifetime of the key in days; None: no expiry.

        Raises
        ------
        ProblemError
            ``invalid-tenant``.

        """
        if not is_tenant_name(tenant):
            remedy = "Use at most 40 lower-case letters, digits and hyphens, and begin with a letter or a digit."
            raise refuse("invalid-tenant", 422, f"{tenant[:100]!r} cannot be the name of a tenant.", remedy)
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
        """Give a key a new secret; return the changed record, and the new bearer token.

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
        """Remove a key; return the removed key.

        Raises
        ------
        ProblemError
            ``key-not-found``.

        """
        if (key := self.records.delete(id_)) is None:
            raise KEY_KIND.not_found(id_)
        return key

    def all(self) -> list[Key]:
        """Return the keys of all tenants, the oldest first."""
        keys = {id_: KEY_KIND.load(id_, raw) for id_, raw in self.records.all()}
        return sorted(keys.values(), key=lambda key: (key.created, key.id))

    def count_admins(self) -> int:
        """Return the number of valid keys with the scope admin."""
        return sum("admin" in key.scopes and _is_valid(key.expires) for key in self.all())

    def has_keys(self) -> bool:
        """Return whether a key was ever created, as far as this process knows without asking Redis."""
        return bool(self._is_guarded)

    def exist(self) -> bool:
        """Return whether a key was ever created, in which case requests need a key.

        Redis is asked, unless this process knows already that a key was created.
        """
        if not self._is_guarded and KEYS in self.records.usage():
            self._is_guarded = True
        return self.has_keys()

    def is_guarded(self) -> bool:
        """Return whether requests need a key: they do once a key was created, even if all keys are revoked now.

        Redis is asked at most once a second.

        Raises
        ------
        ProblemError
            One of `worker.storage.mark.LOSSES` if Redis has no key and may have lost keys; ``store-unavailable``.

        """
        now = time.monotonic()
        if self._is_guarded is None or (not self._is_guarded and now >= self._next_look):
            self._next_look = now + KEY_CHECK_SECONDS  # requests during the check use the former answer
            try:
                if not self.exist():
                    self._mark.require_no_loss()
                    self._is_guarded = False
            except BaseException:
                self._next_look = 0.0
                raise
        return self.has_keys()

    def is_current(self, token: str | None) -> bool:
        """Return whether `is_guarded` and `verify` can answer without reading from Redis.

        `token` is the bearer token of the request, or None if the request has none.
        """
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
        """Return a store that accepts, without asking Redis, each key that this process has read, however long ago.

        For a key that this process has never read, the store asks Redis, which fails if Redis does not answer.
        """
        store = KeyStore(self._client, self._mark)
        store._read = {id_: (key, math.inf) for id_, (key, _) in self._read.items()}
        store._is_guarded, store._next_look = self._is_guarded, math.inf
        return store

    def verify(self, token: str) -> Key:
        """Return the key of a bearer token.

        Raises
        ------
        ProblemError
            ``invalid-key`` if the key is unknown, revoked, replaced or expired; ``record-unreadable``; one of
            `worker.storage.mark.LOSSES` if Redis may have lost the key; ``store-unavailable``.

        """
        # If the secret does not match, read the key from Redis again: since the last reading, it may have a new secret.
        key = self._match(token) or self._match(token, is_new=True)
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
        """Return the key to which a token belongs, or None; the time that this takes says nothing about the secret.

        With `is_new`, the key is read from Redis even if it was read in the last second.
        """
        prefix, id_, secret = _parse_token(token)
        key = self._look(id_, is_new=is_new) if prefix == KEY_PREFIX else None
        sha256, is_match = hashlib.sha256(secret.encode()).hexdigest(), False
        for stored in key.secrets if key is not None else (Secret(sha256=_NO_SECRET),):
            is_match |= hmac.compare_digest(stored.sha256, sha256) and _is_valid(stored.until)
        return key if is_match else None

    def _look(self, id_: str, *, is_new: bool) -> Key | None:
        """Return a key by its id, read from Redis unless it was read in the last second; None if it does not exist.

        With `is_new`, the key is read in any case.
        """
        key, until = self._read.get(id_, (None, 0.0))
        now = time.monotonic()
        if key is not None and now < until and not is_new:
            return key
        if key is not None:  # requests that arrive during the reading use the former key
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
            # `verify` then checks whether Redis has lost its data. If so, the key stays in `_read`; otherwise it was
            # deleted, and `verify` drops it.
            self._read[id_] = key, _GONE
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
