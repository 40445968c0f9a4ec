"""Bearer keys: who may do what, for which tenant. What is kept of a key does not let anyone in.

They are a file in the data folder, not records in Redis: keys are made before the service runs and while it does, with
embedded servers whose addresses nobody knows, and they outlive the queue. All API processes share that folder already,
for the data sets. Each looks at the file once a second, and when a key is new to it: so long a revoked one may be good.

A secret is 32 random bytes. SHA-256 of it is what is kept: slow hashes are for passwords that can be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from worker.base.clock import iso, now_iso, now_ms
from worker.base.files import locked, temporary
from worker.base.problems import ProblemError, refuse
from worker.base.versions import MEMBER, check_schema, stamp
from worker.records.ids import KEY_ID_BYTES, KEY_PREFIX
from worker.records.tenants import is_tenant_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Scope = Literal["read", "write", "admin"]

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")  # each includes those before it
SECRET_BYTES = 32
LOOK_SECONDS = 1.0
_NOBODYS = hashlib.sha256(b"").hexdigest()  # an unknown id takes as long as a wrong secret


@dataclass(frozen=True, kw_only=True)
class Secret:
    """What is kept of a secret: its SHA-256, and until when it is good (None: for ever)."""

    sha256: str
    until: str | None = None


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key as it is kept; `scopes` has the included ones too, `secrets` for a while those before the present one."""

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
        kept = tuple(Secret(**secret) for secret in value["secrets"])
        return cls(**{**value, "scopes": tuple(value["scopes"]), "secrets": kept})


class KeyStore:
    """The keys of a data folder.

    Parameters
    ----------
    folder
        The data folder; made when the first key is.

    Attributes
    ----------
    path
        The file.

    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._look_again = 0.0  # when
        self._seen: tuple[int, int, int] | None = None  # which file `_keys` was read from
        self._keys: dict[str, Key] = {}

    @classmethod
    def under(cls, data_dir: str) -> Self:
        """Return the store in the folder of all data."""
        return cls(Path(data_dir))

    def create(self, tenant: str, scopes: tuple[Scope, ...], name: str, days: float | None) -> tuple[Key, str]:
        """Make a key; return it and what its bearer says, which is told this once.

        Parameters
        ----------
        days
            After so many it expires; None: never.

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
            secrets=(_kept(secret),),
        )
        self._change(lambda keys: {**keys, key.id: key})
        return key, _spoken(key, secret)

    def rotate(self, id_: str, overlap_hours: float) -> tuple[Key, str]:
        """Give a key a new secret; the present one is good for so many hours more.

        Returns
        -------
        key, what its bearer says from now on

        Raises
        ------
        ProblemError
            ``no-such-key``, ``keys-unreadable``, ``keys-unwritable``.

        """
        secret, until, now = secrets.token_urlsafe(SECRET_BYTES), _in(timedelta(hours=overlap_hours)), now_iso()

        def rotated(keys: dict[str, Key]) -> dict[str, Key]:
            key = _known(keys, id_)
            former = [replace(old, until=min(old.until or until, until)) for old in key.secrets]
            good = [old for old in former if old.until is not None and old.until > now]
            return {**keys, id_: replace(key, secrets=(_kept(secret), *good))}

        key = self._change(rotated)[id_]
        return key, _spoken(key, secret)

    def put(self, restored: Iterable[Key]) -> int:
        """Add keys as they were, beside those that are there; return how many were not. Raises as `create`."""
        added: list[Key] = []

        def more(keys: dict[str, Key]) -> dict[str, Key]:
            added[:] = [key for key in restored if key.id not in keys]
            return {**keys, **{key.id: key for key in added}}

        self._change(more)
        return len(added)

    def revoke(self, id_: str) -> Key:
        """Forget a key; return what it was.

        Raises
        ------
        ProblemError
            ``no-such-key``, ``keys-unreadable``, ``keys-unwritable``.

        """
        before: dict[str, Key] = {}

        def without(keys: dict[str, Key]) -> dict[str, Key]:
            before[id_] = _known(keys, id_)
            return {known: key for known, key in keys.items() if known != id_}

        self._change(without)
        return before[id_]

    def all(self) -> list[Key]:
        """Return the keys, the oldest first."""
        return sorted(self._look().values(), key=lambda key: (key.created, key.id))

    def has_key_file(self) -> bool:
        """Say whether there ever was a key: revoking the last one opens nothing."""
        self._look()
        return self._seen is not None

    def verify(self, spoken: str) -> Key:
        """Return the key of what a bearer says.

        Raises
        ------
        ProblemError
            ``invalid-key``: unknown, revoked, replaced or expired. ``keys-unreadable``.

        """
        key = self._match(spoken)
        if key is None:  # it may be newer than the last look
            self._look_again = 0.0
            key = self._match(spoken)
        if key is None:
            remedy = "Use the key as it was printed, all of it; ask whoever runs the service for another."
            raise refuse("invalid-key", 401, "The key is unknown, revoked or replaced.", remedy)
        if not _is_to_come(key.expires):
            remedy = "Ask whoever runs the service for a new key."
            raise refuse("invalid-key", 401, f"Key {key.id} expired at {key.expires}.", remedy, key=key.id)
        return key

    def _match(self, spoken: str) -> Key | None:
        """Return the key of what a bearer says, or None; how long that takes tells nothing of the secret."""
        prefix, _, rest = spoken.partition("_")
        id_, _, secret = rest.partition("_")
        key = self._look().get(id_) if prefix == KEY_PREFIX else None
        told, good = hashlib.sha256(secret.encode()).hexdigest(), False
        for kept in key.secrets if key is not None else (Secret(sha256=_NOBODYS),):
            good |= hmac.compare_digest(kept.sha256, told) and _is_to_come(kept.until)
        return key if good else None

    def _look(self) -> dict[str, Key]:
        """Return the keys by id, read again when the file is another than the last time."""
        if (now := time.monotonic()) < self._look_again:
            return self._keys
        try:
            stat = self.path.stat()
            if (seen := (stat.st_ino, stat.st_mtime_ns, stat.st_size)) != self._seen:
                self._keys, self._seen = parse_keys(self.path.read_bytes()), seen
        except FileNotFoundError:
            self._keys, self._seen = {}, None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(self.path, error) from error
        self._look_again = now + LOOK_SECONDS
        return self._keys

    def _change(self, change: Callable[[dict[str, Key]], dict[str, Key]]) -> dict[str, Key]:
        """Put other keys in place of those that are there; two changes at once both happen."""
        try:
            with locked(self.path.with_suffix(".lock")), temporary(self.path.parent) as file:
                self._look_again = 0.0
                keys = change(self._look())
                self._look_again = 0.0
                file.write(format_keys(keys).encode())
                file.publish(self.path)
        except OSError as error:
            remedy = "Run the command as the service's user, with its GLLE_DATA_DIR."
            raise refuse("keys-unwritable", 507, f"The keys cannot be written: {error}.", remedy) from error
        return keys


def parse_keys(raw: bytes) -> dict[str, Key]:
    """Return the keys of a file by their ids; raises as `worker.base.versions.check_schema`, ValueError, KeyError, TypeError."""
    told = json.loads(raw)
    told = check_schema("The file of the keys", {"keys": told} if isinstance(told, list) else told)
    return {key["id"]: Key.from_dict(key) for key in told["keys"]}


def format_keys(keys: dict[str, Key]) -> str:
    """Return the file of these keys: a list, which from version 2 on has the version beside it."""
    told = stamp({"keys": [asdict(key) for key in keys.values()]})
    return json.dumps(told if MEMBER in told else told["keys"], indent=1)


def _known(keys: dict[str, Key], id_: str) -> Key:
    if id_ not in keys:
        raise refuse("no-such-key", 404, f"There is no key {id_}.", "See `glle keys list` for the ids.", key=id_)
    return keys[id_]


def _kept(secret: str) -> Secret:
    return Secret(sha256=hashlib.sha256(secret.encode()).hexdigest())


def _spoken(key: Key, secret: str) -> str:
    return f"{KEY_PREFIX}_{key.id}_{secret}"


def _in(span: timedelta) -> str:
    return iso(now_ms() + span // timedelta(milliseconds=1))


def _is_to_come(moment: str | None) -> bool:
    """Say whether a moment is in the future, as None always is."""
    return moment is None or moment > now_iso()


def _unreadable(path: Path, error: Exception) -> ProblemError:
    return refuse(
        "keys-unreadable",
        503,
        f"The keys cannot be read ({type(error).__name__}), so nobody is let in.",
        f"Let the service's user read {path.name} in GLLE_DATA_DIR, or put it back from a backup.",
    )
