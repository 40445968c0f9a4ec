"""Settings: one table of names, defaults and help, read from `GLLE_*` environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "GLLE_"


class SettingsError(ValueError):
    """Setting with an invalid value; the message names the valid ones."""


def _setting(
    default: Any, help_: str, *, at_least: float = 0, choices: tuple[str, ...] = (), secret: bool = False
) -> Any:
    metadata = {"help": help_, "at_least": at_least, "choices": choices, "secret": secret}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Configuration; the field `name` is the variable `GLLE_NAME`."""

    redis_url: str = _setting("", "Redis of the queue and the records: noeviction, AOF. Empty: embedded.", secret=True)
    cache_url: str = _setting("", "Redis of the arrays: allkeys-lru, no AOF. Empty: embedded.", secret=True)
    data_dir: str = _setting("./glle-data", "Folder of the data sets, and of the embedded servers.")
    data_in: str = _setting(
        "folder",
        "Place of data sets, imported posteriors and keys: folder (GLLE_DATA_DIR, which all machines share), or store "
        "(GLLE_STORE_URL, with an index in the queue's Redis; GLLE_DATA_DIR is then each machine's own).",
        choices=("folder", "store"),
    )
    copies_bytes: int = _setting(
        2**32, "With GLLE_DATA_IN=store: bytes of the copies that a machine keeps in GLLE_DATA_DIR.", at_least=2**20
    )
    host: str = _setting("127.0.0.1", "Address the API listens on.")
    port: int = _setting(8000, "Port the API listens on; 0 takes a free one.")
    auth: str = _setting(
        "auto",
        "Requests need a key: auto (except on loopback until a key exists), required, off (loopback only).",
        choices=("auto", "required", "off"),
    )
    published: str = _setting("", "Address on which a container engine publishes the API. Empty: GLLE_HOST.")
    trusted_proxies: str = _setting(
        "",
        "Proxies whose X-Forwarded-For names the client: addresses or networks, comma-separated. Empty: none.",
    )
    quota_bytes: int = _setting(0, "Bytes of the data sets of a tenant; 0: no limit.")
    quota_jobs: int = _setting(0, "Open (waiting or running) jobs of a tenant; 0: no limit.")
    quota_requests: int = _setting(0, "Requests of a tenant per minute; 0: no limit.")
    quota_records: int = _setting(
        10_000, "Records of ended jobs of a tenant; beyond it the oldest are removed. 0: no limit."
    )
    quota_posteriors: int = _setting(10_000, "Posteriors of a tenant; 0: no limit.")
    quotas: str = _setting("", "Tenants with other quotas: `alice=bytes:5000000000,jobs:20 bob=requests:600`.")
    cors_origins: str = _setting("", "Origins whose pages may use the API, comma-separated; * for all. Empty: none.")
    api_processes: int = _setting(
        2, "API processes of `glle up` and of `glle serve`, which share one socket.", at_least=1
    )
    workers: int = _setting(2, "Worker processes of `glle up`.", at_least=1)
    max_body: int = _setting(512 * 2**20, "Bytes of an uploaded body other than JSON.", at_least=1)
    max_json: int = _setting(4 * 2**20, "Bytes of an uploaded JSON body.", at_least=1)
    max_inflated: int = _setting(2**30, "Bytes of an uploaded npz, CSV, Arrow or Parquet body, unpacked.", at_least=1)
    readers: int = _setting(
        2, "Uploaded bodies parsed at once by each API process, each in a sandboxed process.", at_least=1
    )
    reader_bytes: int = _setting(2**30, "Bytes of memory for parsing one body.", at_least=2**24)
    reader_cpu: int = _setting(60, "Seconds of processor time for parsing one body.", at_least=1)
    reader_seconds: float = _setting(
        120.0, "Seconds for parsing one body, and for its wait in the queue of bodies.", at_least=0.1
    )
    max_points: int = _setting(1_000_000, "Points (rows) of a data set.", at_least=1)
    max_features: int = _setting(10_000, "Features (columns) of a data set.", at_least=1)
    max_neighbors: int = _setting(200, "n_neighbors of a posterior.", at_least=2)
    max_components: int = _setting(50, "n_components of a posterior.", at_least=1)
    max_draws: int = _setting(10_000, "Draws of one job, all scales together.", at_least=1)
    max_jobs: int = _setting(10_000, "Open jobs of all tenants; more are refused with 503. 0: no limit.")
    max_wait: float = _setting(60.0, "Seconds that a request may wait for a job (`?wait=`).")
    patience: float = _setting(
        30.0,
        "Seconds for a request's headers, for the first byte of its body, and for an idle connection.",
        at_least=0.1,
    )
    least_speed: int = _setting(1024, "Bytes per second that a body must reach after its first byte; 0: no limit.")
    max_connections: int = _setting(1000, "Open connections of each API process; 0: no limit.")
    max_address: int = _setting(
        800,
        "Open connections of one address per API process, except GLLE_TRUSTED_PROXIES; 0: no limit.",
    )
    max_requests: int = _setting(
        800, "Requests in progress of each API process, waiting ones included; one more gets 503. 0: no limit."
    )
    max_waits: int = _setting(
        200, "Waiting requests of one tenant per API process; one more is answered at once.", at_least=0
    )
    max_streams: int = _setting(100, "Open streams of events or draws of each API process.", at_least=0)
    max_tenant_streams: int = _setting(80, "Open streams of one tenant per API process.", at_least=0)
    cache_bytes: int = _setting(2**30, "Bytes of the array cache; one value may take half of it.", at_least=2**20)
    queue_bytes: int = _setting(256 * 2**20, "Bytes of the embedded queue server.", at_least=2**20)
    queue_high_water: float = _setting(
        0.8,
        "Share of the queue server's memory above which new jobs are refused; the rest serves workers and deletions.",
        at_least=0.01,
    )
    disk_reserve: int = _setting(
        256 * 2**20,
        "Bytes that uploads leave free on the data folder's disk, for the log of the embedded queue server; 0: none.",
    )
    queue_fsync: str = _setting(
        "always",
        "When the embedded queue server writes to disk: always (before each answer; no accepted job is lost), "
        "or everysec (faster on slow disks; a power cut loses the last seconds).",
        choices=("always", "everysec"),
    )
    recent_bytes: int = _setting(64 * 2**20, "Bytes of memory of the answer cache of each API process.", at_least=0)
    cache_ttl: int = _setting(30 * 86400, "Seconds that an array stays cached, if space allows.", at_least=1)
    store_url: str = _setting(
        "",
        "Object store behind the cache, any fsspec URL (extra storage): file:///..., s3://bucket/prefix. Empty: none.",
        secret=True,
    )
    store_posteriors: str = _setting(
        "auto",
        "Posteriors to keep in the object store as well: auto (if the fit took longer than a read), always, never.",
        choices=("auto", "always", "never"),
    )
    store_bytes: int = _setting(2**36, "Bytes of the object store; 0: no limit.")
    store_seconds: float = _setting(15.0, "Time limit of the object store for 8 MB, seconds.", at_least=0.01)
    job_timeout: int = _setting(600, "Time limit of one task of a job, seconds.", at_least=1)
    cost_margin: float = _setting(2.0, "Safety factor on the estimated seconds of an embedding or a fit.", at_least=1)
    method_bytes: int = _setting(2 * 2**30, "Bytes of working memory of an embedding or a fit.", at_least=2**20)
    job_ttl: int = _setting(7 * 86400, "Seconds that the record of an ended job is kept.", at_least=1)
    idempotency_ttl: int = _setting(86400, "Seconds that the answer of an Idempotency-Key is kept.", at_least=60)
    heartbeat: int = _setting(
        5, "Seconds between the heartbeats of a busy worker; after 4 missed ones its task is repeated.", at_least=1
    )
    alive_file: str = _setting(
        "", "File of a worker for probes: while it lives, the file's modification time is in the future. Empty: none."
    )
    redis_patience: float = _setting(60.0, "Seconds that a worker waits for an unreachable Redis, or for a new master.")
    replicas: int = _setting(0, "Replicas of the queue's Redis that must have a job before it is accepted.")
    resident_bytes: int = _setting(
        512 * 2**20, "Bytes of posteriors that the executor of a worker keeps in memory.", at_least=0
    )
    shard_seconds: float = _setting(
        2.0, "Seconds of work in one shard of a job, at most, so that jobs interleave; four resamples may take longer."
    )
    stop_grace: float = _setting(
        8.0, "Seconds that a stopping API, and `glle up`, wait for requests and tasks in progress."
    )
    drain: float = _setting(
        0.0,
        "Seconds that a stopping `glle serve` goes on serving while not ready, so that a load balancer notices.",
        at_least=0,
    )
    log_format: str = _setting("text", "Log lines as text or as JSON objects.", choices=("text", "json"))
    log_level: str = _setting("info", "Lowest level of the log lines.", choices=("debug", "info", "warning", "error"))
    access_log: str = _setting("auto", "One log line per request; auto: with JSON only.", choices=("auto", "on", "off"))
    traces: str = _setting(
        "auto",
        "OpenTelemetry traces to an OTLP collector (extra otel); auto: if OTEL_EXPORTER_OTLP_ENDPOINT is set.",
        choices=("auto", "on", "off"),
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Return the settings of an environment, by default the process's; raises `SettingsError`."""
        environ = os.environ if environ is None else environ
        return cls(**{row.name: row.parse(environ[row.variable]) for row in rows() if row.variable in environ})

    def to_env(self) -> dict[str, str]:
        """Return these settings as environment variables."""
        return {row.variable: str(getattr(self, row.name)) for row in rows()}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Row of the settings table: variable, command-line flag and documentation of one setting."""

    name: str
    default: Any
    help: str
    at_least: float
    choices: tuple[str, ...]
    secret: bool

    @property
    def variable(self) -> str:
        """Environment variable."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Command-line option."""
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str, source: str = "") -> Any:
        """Convert a text to the type of the default.

        Parameters
        ----------
        source
            The text's place, for the error; default: the variable.

        Raises
        ------
        SettingsError
            If the value is of another type, below its minimum, or none of the choices.

        """
        source = source or f"{self.variable}={text!r}"
        kind = type(self.default)
        if kind is str:
            if self.choices and text not in self.choices:
                raise SettingsError(f"{source} must be one of {', '.join(self.choices)}.")
            return text
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= self.at_least:  # NaN is refused too
            noun = "an integer" if kind is int else "a number"
            raise SettingsError(f"{source} must be {noun} of at least {self.at_least:g}.")
        return value

    def shown(self, value: Any) -> str:
        """Return a value without secrets: a URL loses its login and query."""
        if not self.secret or not value:
            return str(value)
        try:
            parts = urlsplit(str(value))
        except ValueError:
            return "***"
        if "@" in str(value) and "@" not in parts.netloc:  # the password may be in the seeming host, port or path
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
    """Return the `GLLE_*` variables of `environ` that no setting reads, probably misspelled."""
    variables = {row.variable for row in rows()}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in variables)
