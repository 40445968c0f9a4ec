"""The settings: one table of names, defaults and help, read from `GLLE_*` environment variables."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "GLLE_"


class SettingsError(ValueError):
    """A setting whose value cannot be used; the message says what would be."""


def _setting(default: Any, help_: str, *, at_least: float = 0) -> Any:
    return field(default=default, metadata={"help": help_, "at_least": at_least})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be configured; each field is the variable `GLLE_<NAME>`.

    Raises
    ------
    SettingsError
        From `from_env`, for a value that is not of the default's type or below its least value.

    """

    redis_url: str = _setting("", "Redis of the queue and the records: noeviction, AOF. Empty: embedded.")
    cache_url: str = _setting("", "Redis of the arrays: allkeys-lru, no AOF. Empty: embedded.")
    data_dir: str = _setting("./glle-data", "Folder of the data sets, and of the embedded servers.")
    host: str = _setting("127.0.0.1", "Address the API listens on.")
    port: int = _setting(8000, "Port the API listens on; 0 takes a free one.")
    cors_origins: str = _setting("", "Origins whose pages may use the API, commas between; * for all. Empty: none.")
    workers: int = _setting(2, "Worker processes that `glle up` starts.", at_least=1)
    max_body: int = _setting(512 * 2**20, "Bytes of an uploaded body that is not JSON.", at_least=1)
    max_json: int = _setting(4 * 2**20, "Bytes of an uploaded JSON body.", at_least=1)
    max_inflated: int = _setting(2**30, "Bytes of an uploaded npz, Arrow or Parquet body, unpacked.", at_least=1)
    max_points: int = _setting(1_000_000, "Points (rows) of a data set.", at_least=1)
    max_features: int = _setting(10_000, "Features (columns) of a data set.", at_least=1)
    max_neighbors: int = _setting(200, "n_neighbors of a posterior.", at_least=2)
    max_components: int = _setting(50, "n_components of a posterior.", at_least=1)
    max_draws: int = _setting(10_000, "Draws of one job, all scales together.", at_least=1)
    max_wait: float = _setting(60.0, "Seconds a request may wait for a job (`?wait=`).")
    cache_bytes: int = _setting(2**30, "Bytes of the array cache; no value may exceed half.", at_least=2**20)
    queue_bytes: int = _setting(256 * 2**20, "Bytes of the embedded queue server.", at_least=2**20)
    warm_bytes: int = _setting(256 * 2**20, "Bytes of posteriors that each worker keeps at hand.", at_least=0)
    recent_bytes: int = _setting(64 * 2**20, "Bytes of answers that each API process keeps at hand.", at_least=0)
    cache_ttl: int = _setting(30 * 86400, "Seconds an array stays cached, if space allows.", at_least=1)
    job_timeout: int = _setting(600, "Seconds one task of a job may take.", at_least=1)
    job_ttl: int = _setting(7 * 86400, "Seconds a job's record is kept after its end.", at_least=1)
    heartbeat: int = _setting(5, "Seconds between a busy worker's signs of life; 4 missed: redone.", at_least=1)
    shard_seconds: float = _setting(2.0, "Work in one shard of a draws job, so that jobs interleave.")
    stop_grace: float = _setting(8.0, "Seconds `glle up` waits for running work when it stops.")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Return the settings of `environ` (default: the process's environment)."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for known in fields(cls):
            text = environ.get(PREFIX + known.name.upper())
            if text is not None:
                values[known.name] = _parse(known.name, text, known.default, known.metadata["at_least"])
        return cls(**values)


def table() -> list[tuple[str, Any, str]]:
    """Return the settings as rows of (variable, default, help)."""
    return [(PREFIX + f.name.upper(), f.default, str(f.metadata["help"])) for f in fields(Settings)]


def unknown(environ: Mapping[str, str]) -> list[str]:
    """Return the `GLLE_*` variables of `environ` that no setting reads, a misspelling most likely."""
    known = {name for name, _, _ in table()}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def _parse(name: str, text: str, default: Any, at_least: float) -> Any:
    assert default is not MISSING
    kind = type(default)
    if kind is str:
        return text
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not value >= at_least:  # NaN is refused too
        noun = "an integer" if kind is int else "a number"
        raise SettingsError(f"{PREFIX}{name.upper()}={text!r} must be {noun} of at least {at_least:g}.")
    return value
