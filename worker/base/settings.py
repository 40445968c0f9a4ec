"""The settings: one table of names, defaults and help, read from `GLLE_*` environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "GLLE_"


class SettingsError(ValueError):
    """A setting whose value cannot be used; the message says what would be."""


def _setting(
    default: Any, help_: str, *, at_least: float = 0, choices: tuple[str, ...] = (), secret: bool = False
) -> Any:
    told = {"help": help_, "at_least": at_least, "choices": choices, "secret": secret}
    return field(default=default, metadata=told)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be configured; each field is the variable `GLLE_<NAME>`.

    Raises
    ------
    SettingsError
        From `from_env`, for a value that is not of the default's type or below its least value.

    """

    redis_url: str = _setting("", "Redis of the queue and the records: noeviction, AOF. Empty: embedded.", secret=True)
    cache_url: str = _setting("", "Redis of the arrays: allkeys-lru, no AOF. Empty: embedded.", secret=True)
    data_dir: str = _setting("./glle-data", "Folder of the data sets, and of the embedded servers.")
    host: str = _setting("127.0.0.1", "Address the API listens on.")
    port: int = _setting(8000, "Port the API listens on; 0 takes a free one.")
    auth: str = _setting(
        "auto",
        "Who needs a key: auto (everyone, but on loopback nobody until a key is made), required, off (loopback only).",
        choices=("auto", "required", "off"),
    )
    published: str = _setting("", "Address on which a container engine publishes the API. Empty: GLLE_HOST.")
    trusted_proxies: str = _setting(
        "",
        "Addresses or networks of proxies, commas between, whose X-Forwarded-For names the client. Empty: none.",
    )
    quota_bytes: int = _setting(0, "Bytes of the data sets of a tenant; 0: any number.")
    quota_jobs: int = _setting(0, "Jobs of a tenant that may wait or run at once; 0: any number.")
    quota_requests: int = _setting(0, "Requests of a tenant a minute; 0: any number.")
    quota_records: int = _setting(
        10_000, "Records of ended jobs that a tenant keeps; of more the oldest are removed. 0: any number."
    )
    quota_posteriors: int = _setting(10_000, "Posteriors of a tenant; 0: any number.")
    quotas: str = _setting("", "Tenants with other quotas: `alice=bytes:5000000000,jobs:20 bob=requests:600`.")
    cors_origins: str = _setting("", "Origins whose pages may use the API, commas between; * for all. Empty: none.")
    workers: int = _setting(2, "Worker processes that `glle up` starts.", at_least=1)
    max_body: int = _setting(512 * 2**20, "Bytes of an uploaded body that is not JSON.", at_least=1)
    max_json: int = _setting(4 * 2**20, "Bytes of an uploaded JSON body.", at_least=1)
    max_inflated: int = _setting(2**30, "Bytes of an uploaded npz, CSV, Arrow or Parquet body, unpacked.", at_least=1)
    readers: int = _setting(
        2, "Uploaded bodies that each API process reads at once, each in a process with limits.", at_least=1
    )
    reader_bytes: int = _setting(2**30, "Bytes of memory that reading one body may take.", at_least=2**24)
    reader_cpu: int = _setting(60, "Seconds of processor time that reading one body may take.", at_least=1)
    reader_seconds: float = _setting(
        120.0, "Seconds that reading one body may take; and that a body waits for its turn.", at_least=0.1
    )
    max_points: int = _setting(1_000_000, "Points (rows) of a data set.", at_least=1)
    max_features: int = _setting(10_000, "Features (columns) of a data set.", at_least=1)
    max_neighbors: int = _setting(200, "n_neighbors of a posterior.", at_least=2)
    max_components: int = _setting(50, "n_components of a posterior.", at_least=1)
    max_draws: int = _setting(10_000, "Draws of one job, all scales together.", at_least=1)
    max_jobs: int = _setting(
        10_000, "Jobs of all tenants that may wait or run at once; more are refused with 503. 0: any number."
    )
    max_wait: float = _setting(60.0, "Seconds a request may wait for a job (`?wait=`).")
    patience: float = _setting(
        30.0,
        "Seconds for a request's head, and for the begin of its body; an unused connection ends with them.",
        at_least=0.1,
    )
    least_speed: int = _setting(1024, "Bytes a second that a body must bring after its begin; 0: any.")
    max_connections: int = _setting(1000, "Connections that each API process holds at once; 0: any number.")
    max_address: int = _setting(
        800,
        "Connections of one address that each API process holds at once, but for GLLE_TRUSTED_PROXIES; 0: any number.",
    )
    max_waits: int = _setting(
        200, "Requests of one tenant that wait for jobs in each API process; one more is answered at once.", at_least=0
    )
    max_streams: int = _setting(100, "Streams of events or draws that each API process keeps open.", at_least=0)
    max_tenant_streams: int = _setting(80, "Those of one tenant, so that others find room.", at_least=0)
    cache_bytes: int = _setting(2**30, "Bytes of the array cache; no value may exceed half.", at_least=2**20)
    queue_bytes: int = _setting(256 * 2**20, "Bytes of the embedded queue server.", at_least=2**20)
    queue_high_water: float = _setting(
        0.8,
        "Share of the queue server's memory above which new jobs are refused; the rest is for workers and deletions.",
        at_least=0.01,
    )
    disk_reserve: int = _setting(
        256 * 2**20,
        "Bytes of the data folder's disk that uploads leave free, for the log of the embedded queue server; 0: none.",
    )
    queue_fsync: str = _setting(
        "always",
        "When the embedded queue server writes to disk: always, before each answer, so that nothing accepted is lost; "
        "or everysec, which is faster on slow disks, and loses the last seconds in a power cut.",
        choices=("always", "everysec"),
    )
    recent_bytes: int = _setting(64 * 2**20, "Bytes of memory for answers that each API process keeps.", at_least=0)
    cache_ttl: int = _setting(30 * 86400, "Seconds an array stays cached, if space allows.", at_least=1)
    store_url: str = _setting(
        "",
        "Object store behind the cache, any fsspec URL (extra storage): file:///..., s3://bucket/prefix. Empty: none.",
        secret=True,
    )
    store_posteriors: str = _setting(
        "auto",
        "Which posteriors are stored beside the cache: auto (fitted for longer than reading takes), always, never.",
        choices=("auto", "always", "never"),
    )
    store_bytes: int = _setting(2**36, "Bytes that the object store may hold; 0: any number.")
    store_seconds: float = _setting(15.0, "Seconds that the object store may take for 8 MB.", at_least=0.01)
    job_timeout: int = _setting(600, "Seconds one task of a job may take.", at_least=1)
    cost_margin: float = _setting(
        2.0, "Factor of safety on the seconds that an embedding is expected to take.", at_least=1
    )
    method_bytes: int = _setting(2 * 2**30, "Bytes of working memory that an embedding may take.", at_least=2**20)
    job_ttl: int = _setting(7 * 86400, "Seconds a job's record is kept after its end.", at_least=1)
    idempotency_ttl: int = _setting(86400, "Seconds for which an Idempotency-Key has its answer.", at_least=60)
    heartbeat: int = _setting(5, "Seconds between a busy worker's signs of life; 4 missed: redone.", at_least=1)
    redis_patience: float = _setting(60.0, "Seconds a worker waits for a Redis that is away or changes its master.")
    replicas: int = _setting(0, "Replicas of the queue's Redis that have a job before it is accepted.")
    shard_seconds: float = _setting(2.0, "Most work in one shard of a draws job, so that jobs interleave.")
    stop_grace: float = _setting(8.0, "Seconds a stopping API, and `glle up`, wait for what is under way.")
    drain: float = _setting(
        0.0, "Seconds a stopping `glle serve` goes on, not ready, so that a balancer notices.", at_least=0
    )
    log_format: str = _setting("text", "Log lines for people, or JSON objects for machines.", choices=("text", "json"))
    log_level: str = _setting(
        "info", "Least level of a log line that is written.", choices=("debug", "info", "warning", "error")
    )
    access_log: str = _setting(
        "auto", "A log line for every request; auto: with JSON only.", choices=("auto", "on", "off")
    )
    traces: str = _setting(
        "auto",
        "OpenTelemetry traces to an OTLP collector (extra otel); auto: where OTEL_EXPORTER_OTLP_ENDPOINT is set.",
        choices=("auto", "on", "off"),
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Return the settings of `environ` (default: the process's environment)."""
        environ = os.environ if environ is None else environ
        return cls(**{row.name: row.parse(environ[row.variable]) for row in rows() if row.variable in environ})

    def to_env(self) -> dict[str, str]:
        """Return the environment variables of which these are the settings."""
        return {row.variable: str(getattr(self, row.name)) for row in rows()}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting as the table has it: the source of its variable, its flag and its documentation."""

    name: str
    default: Any
    help: str
    at_least: float
    choices: tuple[str, ...]
    secret: bool

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Its option on a command line."""
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str, said: str = "") -> Any:
        """Return the value that `text` is; `said` is where it stands, by default in the variable.

        Raises
        ------
        SettingsError
            When it is not of the default's type, below the least value, or none of the choices.

        """
        said = said or f"{self.variable}={text!r}"
        kind = type(self.default)
        if kind is str:
            if self.choices and text not in self.choices:
                raise SettingsError(f"{said} must be one of {', '.join(self.choices)}.")
            return text
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= self.at_least:  # NaN is refused too
            noun = "an integer" if kind is int else "a number"
            raise SettingsError(f"{said} must be {noun} of at least {self.at_least:g}.")
        return value

    def shown(self, value: Any) -> str:
        """Return a value as anyone may see it: a URL without its password, no other secret at all."""
        if not self.secret or not value:
            return str(value)
        try:
            parts = urlsplit(str(value))
        except ValueError:
            return "***"
        if "@" in str(value) and "@" not in parts.netloc:  # the password may be in what seems to be host, port or path
            return "***"
        if parts.scheme == "file" and not parts.netloc and not parts.query:
            return str(value)
        if not parts.hostname:
            return "***"
        login = "***@" if "@" in parts.netloc else ""
        query = "?***" if parts.query else ""
        return f"{parts.scheme}://{login}{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def rows() -> list[Row]:
    """Return the table."""
    return [Row(name=f.name, default=f.default, **f.metadata) for f in fields(Settings)]


def table() -> list[tuple[str, Any, str]]:
    """Return the settings as rows of (variable, default, help)."""
    return [(row.variable, row.default, row.help) for row in rows()]


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the `GLLE_*` variables of `environ` that no setting reads, a misspelling most likely."""
    known = {name for name, _, _ in table()}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
