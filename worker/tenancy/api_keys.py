"""Bearer keys: tenant and scopes of a request. Only SHA-256 digests of the secrets are stored.

The keys are a file in the data folder: `glle keys` works before the service runs, and without the address of an
embedded server. With GLLE_DATA_IN=store they are an item of the object store. Each API process reads them again once a
second, and when a key is new to it. So a revoked key may work for one more second, for
`/metrics` until the process reaches the keys again (`KeyStore.last_read`). A secret has 32 random bytes; slow
hashes are for passwords.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from worker.base.clock import iso, now_iso, now_ms
from worker.base.files import locked, temporary
from worker.base.problems import refuse
from worker.base.versions import check_schema, stamp
from worker.records.ids import KEY_ID_BYTES, KEY_PREFIX
from worker.records.tenants import is_tenant_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from worker.base.problems import ProblemError

Scope = Literal["read", "write", "admin"]

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")  # each includes the ones before it
SECRET_BYTES = 32
LOOK_SECONDS = 1.0
_NO_SECRET = hashlib.sha256(b"").hexdigest()  # an unknown id takes as long as a wrong secret


@dataclass(frozen=True, kw_only=True)
class Secret:
    """SHA-256 of a secret, and its expiry (None: never)."""

    sha256: str
    until: str | None = None


@dataclass(frozen=True, kw_only=True)
class Key:
    """Stored key; `scopes` includes the implied ones, `secrets` the rotated ones until they expire."""

    id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    created: str
    expires: str | None
    secrets: tuple[Secret, ...]

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Return the inverse of `dataclasses.asdict`."""
        stored = tuple(Secret(**secret) for secret in value["secrets"])
        return cls(**{**value, "scopes": tuple(value["scopes"]), "secrets": stored})


class KeyFile(Protocol):
    """Content of all keys, replaced as a whole.

    Attributes
    ----------
    name, remedy
        For messages.

    """

    name: str
    remedy: str

    def look(self, seen: object) -> tuple[object, bytes | None]:
        """Return the present version, and the content unless this version was seen; None twice without keys."""

    def change(self, change: Callable[[bytes | None], bytes]) -> None:
        """Replace the content (None: no keys yet), one process at a time."""


class FolderKeyFile:
    """File in a folder.

    Parameters
    ----------
    folder
        The data folder; `change` makes it.

    """

    remedy = "Let the service's user read keys.json in GLLE_DATA_DIR, or restore it from a backup."

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.name = str(self.path)

    def look(self, seen: object) -> tuple[object, bytes | None]:
        """Return the identity of the file, and the content unless it was seen."""
        try:
            stat = self.path.stat()
            version = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            return version, None if version == seen else self.path.read_bytes()
        except FileNotFoundError:
            return None, None

    def change(self, change: Callable[[bytes | None], bytes]) -> None:
        """Replace the content under a lock."""
        with locked(self.path.with_suffix(".lock")), temporary(self.path.parent) as file:
            file.write(change(self.look(None)[1]))
            file.publish(self.path)


class KeyStore:
    """Keys of a deployment.

    Parameters
    ----------
    file
        Their content.

    """

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._look_again = 0.0  # monotonic time of the next look
        self._seen: object = None  # version that `_keys` was read from
        self._keys: dict[str, Key] = {}
        self._was_read = False

    @classmethod
    def under(cls, data_dir: str | Path) -> Self:
        """Return the keys of a data folder."""
        return cls(FolderKeyFile(Path(data_dir)))

    @property
    def name(self) -> str:
        """Place of the keys."""
        return self._file.name

    def create(self, tenant: str, scopes: tuple[Scope, ...], name: str, days: float | None) -> tuple[Key, str]:
        """Create a key; return it with its bearer token, which is not stored.

        Parameters
        ----------
        days
            Lifetime; None: no expiry.

        Raises
        ------
        ProblemError
            ``invalid-tenant``, ``keys-unreadable``, ``keys-unwritable``.

        """
        if not is_tenant_name(tenant):
            remedy = "Use small letters, digits and hyphens, at most 40, a letter or digit first."
            raise refuse("invalid-tenant", 422, f"{tenant!r} is no name of a tenant.", remedy)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        key = Key(
            id=secrets.token_hex(KEY_ID_BYTES),
            tenant=tenant,
            name=name,
            scopes=SCOPES[: max(SCOPES.index(scope) for scope in scopes) + 1],
            created=now_iso(),
            expires=None if days is None else _in(timedelta(days=days)),
            secrets=(_hashed(secret),),
        )
        self._change(lambda keys: {**keys, key.id: key})
        return key, _token(key, secret)

    def rotate(self, id_: str, overlap_hours: float) -> tuple[Key, str]:
        """Give a key a new secret; return the key with its new bearer token.

        Parameters
        ----------
        overlap_hours
            Remaining lifetime of the present secret.

        Raises
        ------
        ProblemError
            ``no-such-key``, ``keys-unreadable``, ``keys-unwritable``.

        """
        secret, until, now = secrets.token_urlsafe(SECRET_BYTES), _in(timedelta(hours=overlap_hours)), now_iso()

        def rotated(keys: dict[str, Key]) -> dict[str, Key]:
            key = _require(keys, id_)
            former = [replace(old, until=min(old.until or until, until)) for old in key.secrets]
            valid = [old for old in former if old.until is not None and old.until > now]
            return {**keys, id_: replace(key, secrets=(_hashed(secret), *valid))}

        key = self._change(rotated)[id_]
        return key, _token(key, secret)

    def put(self, restored: Iterable[Key]) -> int:
        """Add the keys of a backup that do not exist; return their number. Raises as `create`."""
        added: list[Key] = []

        def more(keys: dict[str, Key]) -> dict[str, Key]:
            added[:] = [key for key in restored if key.id not in keys]
            return {**keys, **{key.id: key for key in added}}

        self._change(more)
        return len(added)

    def revoke(self, id_: str) -> Key:
        """Remove a key; return it.

        Raises
        ------
        ProblemError
            ``no-such-key``, ``keys-unreadable``, ``keys-unwritable``.

        """
        removed: list[Key] = []

        def without(keys: dict[str, Key]) -> dict[str, Key]:
            removed[:] = [_require(keys, id_)]
            return {other: key for other, key in keys.items() if other != id_}

        self._change(without)
        return removed[0]

    def all(self) -> list[Key]:
        """Return the keys, the oldest first."""
        return sorted(self._look().values(), key=lambda key: (key.created, key.id))

    def has_key_file(self) -> bool:
        """Return whether a key ever existed; after the last revocation requests still need a key."""
        self._look()
        return self._seen is not None

    def last_read(self) -> KeyStore:
        """Return the keys as this process read them last; if it never did, or for an unknown key, they are read."""
        store = KeyStore(self._file)
        store._seen, store._keys = self._seen, self._keys
        store._look_again = math.inf if self._was_read else 0.0
        return store

    def verify(self, token: str) -> Key:
        """Return the key of a bearer token.

        Raises
        ------
        ProblemError
            ``invalid-key``: unknown, revoked, replaced or expired. ``keys-unreadable``.

        """
        key = self._match(token)
        if key is None:  # it may be newer than the last look
            self._look_again = 0.0
            key = self._match(token)
        if key is None:
            remedy = "Use the whole key as `glle keys create` printed it, or ask the service's operator for another."
            raise refuse("invalid-key", 401, "The key is unknown, revoked or replaced.", remedy)
        if not _is_valid(key.expires):
            remedy = "Ask the service's operator for a new key."
            raise refuse("invalid-key", 401, f"Key {key.id} expired at {key.expires}.", remedy, key=key.id)
        return key

    def _match(self, token: str) -> Key | None:
        """Return the key of a token, or None; the time does not depend on the secret."""
        prefix, _, rest = token.partition("_")
        id_, _, secret = rest.partition("_")
        key = self._look().get(id_) if prefix == KEY_PREFIX else None
        sha256, is_match = hashlib.sha256(secret.encode()).hexdigest(), False
        for stored in key.secrets if key is not None else (Secret(sha256=_NO_SECRET),):
            is_match |= hmac.compare_digest(stored.sha256, sha256) and _is_valid(stored.until)
        return key if is_match else None

    def _look(self) -> dict[str, Key]:
        """Return the keys by id; read changed keys again."""
        if (now := time.monotonic()) < self._look_again:
            return self._keys
        if self._seen is not None:  # requests that come during the look have the former keys
            self._look_again = now + LOOK_SECONDS
        try:
            seen, raw = self._file.look(self._seen)
            if seen != self._seen:
                self._keys = {} if raw is None else self._parse(raw)
                self._seen = seen
        except OSError as error:
            self._look_again = 0.0
            raise self._unreadable(error) from error
        except BaseException:
            self._look_again = 0.0
            raise
        self._look_again = now + LOOK_SECONDS
        self._was_read = True
        return self._keys

    def _change(self, change: Callable[[dict[str, Key]], dict[str, Key]]) -> dict[str, Key]:
        """Replace the keys by those that `change` returns, one process at a time; return them."""
        changed: dict[str, Key] = {}

        def replaced(raw: bytes | None) -> bytes:
            changed.update(change({} if raw is None else self._parse(raw)))
            return format_keys(changed).encode()

        try:
            self._file.change(replaced)
        except OSError as error:
            remedy = "Run the command as the service's user, with its GLLE_DATA_DIR."
            raise refuse("keys-unwritable", 507, f"The keys cannot be written: {error}.", remedy) from error
        self._look_again = 0.0
        return changed

    def _parse(self, raw: bytes) -> dict[str, Key]:
        try:
            return parse_keys(raw)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ProblemError:
        return refuse(
            "keys-unreadable",
            503,
            f"The keys cannot be read ({type(error).__name__}), so every request is refused.",
            self._file.remedy,
        )


def parse_keys(raw: bytes) -> dict[str, Key]:
    """Return the keys of a file by id.

    Raises
    ------
    ProblemError
        As `worker.base.versions.check_schema`.
    ValueError, KeyError, TypeError
        If it is no file of keys.

    """
    content = check_schema("The file of the keys", json.loads(raw))
    return {key["id"]: Key.from_dict(key) for key in content["keys"]}


def format_keys(keys: dict[str, Key]) -> str:
    """Return the file of these keys."""
    return json.dumps(stamp({"keys": [asdict(key) for key in keys.values()]}), indent=1)


def _require(keys: dict[str, Key], id_: str) -> Key:
    if id_ not in keys:
        raise refuse("no-such-key", 404, f"There is no key {id_}.", "See `glle keys list` for the ids.", key=id_)
    return keys[id_]


def _hashed(secret: str) -> Secret:
    return Secret(sha256=hashlib.sha256(secret.encode()).hexdigest())


def _token(key: Key, secret: str) -> str:
    return f"{KEY_PREFIX}_{key.id}_{secret}"


def _in(span: timedelta) -> str:
    return iso(now_ms() + span // timedelta(milliseconds=1))


def _is_valid(until: str | None) -> bool:
    return until is None or until > now_iso()
