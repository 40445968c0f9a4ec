"""Settings of all programs: one table with names, defaults and help texts, read from `GLLE_*` environment variables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

import pydantic.dataclasses
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

PREFIX = "GLLE_"

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kMGT])(i?)B?|B)?", re.IGNORECASE)
_POWERS = "kmgt"


class SettingsError(ValueError):
    """A setting has an invalid value; the message names the valid values."""


def parse_size(value: object) -> int:
    """Return the bytes in a size such as ``512MB``, ``1GiB``, ``1.5 GB`` or ``1048576``; raises `ValueError`."""
    match = _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not a size. Use a number of bytes, or a size such as 512MB or 1GiB.")
    number, unit, binary = match.groups()
    power = _POWERS.index(unit.lower()) + 1 if unit else 0
    whole, _, decimals = number.partition(".")
    base: int = 1024 if binary else 1000
    return int(int(whole + decimals) * base**power // 10 ** len(decimals))


def show_size(nbytes: int) -> str:
    """Return a number of bytes as a size for `parse_size`: ``512MiB``, or ``1000`` if it is not a multiple of 1024."""
    power = 0
    while nbytes and nbytes % 1024 == 0 and power < len(_POWERS):
        nbytes, power = nbytes // 1024, power + 1
    return f"{nbytes}{('', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


Secret = Annotated[str, "secret"]  # a URL that may have a password
Size = Annotated[int, BeforeValidator(parse_size)]


def _setting(default: Any, help_: str, *, at_least: float = 0, at_most: float | None = None) -> Any:
    lower_bound = None if isinstance(default, str) else at_least  # a lower bound also refuses NaN
    return Field(default, description=help_, ge=lower_bound, le=at_most)


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Settings:
    """Configuration of a process; a field such as `data_dir` is set by the environment variable `GLLE_DATA_DIR`."""

    redis_url: Secret = _setting("", "Redis of the queue and the records: noeviction, AOF. Empty: embedded.")
    cache_url: Secret = _setting("", "Redis of the cache: allkeys-lru, no AOF. Empty: embedded.")
    data_dir: str = _setting("./glle-data", "Folder of all files, and of the embedded servers.")
    host: str = _setting("127.0.0.1", "Address the API listens on.")
    port: int = _setting(8000, "Port the API listens on; 0 takes a free one.", at_most=65535)
    auth: Literal["auto", "required", "off"] = _setting(
        "auto",
        "Requests need a key: auto (except on loopback until a key exists), required, off (loopback only).",
    )
    published: str = _setting("", "Address on which a container engine publishes the API. Empty: GLLE_HOST.")
    trusted_proxies: str = _setting(
        "",
        "Proxies whose X-Forwarded-For names the client: addresses or networks, comma-separated. Empty: none.",
    )
    root_path: str = _setting(
        "", "Path below which a proxy serves the API, such as /glle, if the proxy removes it. Empty: the root."
    )
    quotas: str = _setting(
        "",
        "Quotas of all tenants (*) and of single ones: `*=jobs:20,posteriors:500 alice=bytes:5GB`. They limit bytes of "
        "files (default 0, no limit), bytes of the records of ended jobs (64 MiB), posteriors (10,000), and instead of "
        "a share: jobs, draws, requests, incoming bytes, readers.",
    )
    cors_origins: str = _setting("", "Origins whose pages may use the API, comma-separated; * for all. Empty: none.")
    api_processes: int = _setting(
        2, "API processes of `glle up` and of `glle serve`, which share one socket.", at_least=1
    )
    workers: int = _setting(
        2, "Worker processes of `glle up`, or of this machine or container, which share its memory.", at_least=1
    )
    max_body: Size = _setting(
        512 * 2**20,
        "Bytes of an uploaded body. JSON may have a 128th of this number, and unpacked data twice this number.",
        at_least=1,
    )
    max_points: int = _setting(1_000_000, "Points (rows) of a data set.", at_least=1)
    cache_bytes: Size = _setting(2**30, "Bytes of the cache's server; one draw may take half of it.", at_least=2**16)
    queue_bytes: Size = _setting(256 * 2**20, "Bytes of the embedded queue server.", at_least=2**20)
    store_url: Secret = _setting(
        "",
        "Where all files are stored: s3://, gs:// or az://bucket/prefix, file:///folder. Empty: the data folder.",
    )
    job_timeout: int = _setting(600, "Time limit of one task of a job, seconds.", at_least=1)
    method_bytes: Size = _setting(
        2 * 2**30,
        "Bytes of working memory of a task, such as a fit, an embedding, an audit or draws; a task beyond it fails.",
        at_least=2**20,
    )
    job_ttl: int = _setting(7 * 86400, "Seconds that the record of an ended job and its result are kept.", at_least=1)
    heartbeat: int = _setting(
        5, "Seconds between the heartbeats of a busy worker; after 4 missed ones its task is repeated.", at_least=1
    )
    allow_other_bits: Literal["off", "on"] = _setting(
        "off", "off: a worker whose results would differ in bits from the published ones does not start."
    )
    alive_file: str = _setting(
        "",
        "File of a worker or an API for probes: while it lives, the file's modification time is in the future. "
        "Empty: none.",
    )
    drain: float = _setting(
        0.0,
        "Seconds that a stopping `glle serve` goes on serving while not ready, so that a load balancer notices.",
        at_least=0,
    )
    log_format: Literal["text", "json"] = _setting(
        "text", "Log lines as text or as JSON objects; as text, requests are logged at level debug only."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "Lowest level of the log lines.")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None) -> Self:
        """Return the settings that environment variables and command-line options set.

        Parameters
        ----------
        environ
            Environment variables; by default those of this process.
        flags
            Values of command-line options as text, by the name of the field; they override environment variables.

        Raises
        ------
        SettingsError
            If a value has another type, is out of range, or is not one of the choices.

        """
        environ, flags = os.environ if environ is None else environ, flags or {}
        variables = {row.name: environ[row.variable] for row in rows() if row.variable in environ}
        texts: dict[str, Any] = {**variables, **flags}
        try:
            return cls(**texts)
        except ValidationError as error:
            (row,) = [row for row in rows() if row.name == error.errors()[0]["loc"][0]]
            text = texts[row.name]
            place = f"{row.flag} {text}" if row.name in flags else f"{row.variable}={text!r}"
            raise SettingsError(f"{place} must be {row.expected}.") from None

    def to_env(self) -> dict[str, str]:
        """Return the environment variables, as texts by name, from which `from_env` makes equal settings."""
        return {row.variable: str(getattr(self, row.name)) for row in rows()}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Description of one setting: its variable, command-line option, default, valid values and help text."""

    name: str
    default: Any
    help: str
    at_least: float = 0
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    is_size: bool = False
    secret: bool = False

    @property
    def variable(self) -> str:
        """Name of the environment variable, such as ``GLLE_DATA_DIR``."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Name of the command-line option, such as ``--data-dir``."""
        return "--" + self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        """Which values are valid, as the end of an error message: "one of ..." or "an integer of at least 1"."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.is_size:
            return f"a size of at least {show_size(int(self.at_least))}, such as 1073741824, 512MB or 1GiB"
        noun = "an integer" if isinstance(self.default, int) else "a number"
        return f"{noun} of at least {self.at_least:g}" + (f" and at most {self.at_most}" if self.at_most else "")

    def format(self, value: Any) -> str:
        """Return a value of the setting as text for people, with ``***`` for the password and query of a URL."""
        if self.is_size:
            return show_size(value)
        return _without_secrets(str(value)) if self.secret and value else str(value)


def _without_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "***"
    if "@" in url and "@" not in parts.netloc:  # a part of the password may have been parsed as host, port or path
        return "***"
    if parts.scheme == "file" and not parts.netloc and not parts.query:
        return url
    if not parts.hostname:
        return "***"
    login = "***@" if "@" in parts.netloc else ""
    query = "?***" if parts.query else ""
    return f"{parts.scheme}://{login}{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


@cache
def rows() -> tuple[Row, ...]:
    """Return a row for each setting, with its name, default, description and valid values.

    These are the rows that `glle settings` prints, and that the documentation's page of settings shows.
    """
    fields: dict[str, FieldInfo] = Settings.__pydantic_fields__  # type: ignore[attr-defined] # the decorator adds it
    return tuple(
        Row(
            name=name,
            default=field.default,
            help=str(field.description),
            at_least=next((item.ge for item in field.metadata if hasattr(item, "ge")), 0),
            at_most=next((item.le for item in field.metadata if hasattr(item, "le")), None),
            choices=get_args(field.annotation),
            is_size=any(isinstance(item, BeforeValidator) for item in field.metadata),
            secret="secret" in field.metadata,
        )
        for name, field in fields.items()
    )


# Settings that must have the same value in all API processes and workers of a deployment.
SHARED = (
    *("cache_bytes", "store_url", "job_timeout", "method_bytes", "job_ttl", "heartbeat"),
    "allow_other_bits",
)


def shared_values(settings: Settings) -> dict[str, str]:
    """Return the values of the settings on which all processes must agree, as text without secrets, by variable."""
    return {row.variable: row.format(getattr(settings, row.name)) for row in rows() if row.name in SHARED}


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names of `GLLE_*` variables in `environ` that belong to no setting, and are probably misspelled."""
    variables = {row.variable for row in rows()}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in variables)
