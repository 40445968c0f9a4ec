"""Redis URLs of one server, and of a master behind sentinels.

    redis://user:password@host:6379/0            rediss:// with TLS, unix:///path for a socket
    sentinel://user:password@host1:26379,host2:26379/service/0            sentinels:// with TLS

User and password are those of the servers; `?sentinel_username=` and `?sentinel_password=` those of the sentinels. The
`?replicas=1` in the queue's URL is the number of replicas that must have a job before it is accepted. The
other parameters are redis-py's, such as `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.connection import parse_url

_SENTINELS = ("sentinel", "sentinels")
_PORT = 26379
_ENCRYPTED = frozenset({"rediss", "sentinels"})
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_SENTINEL_LOGIN = {"sentinel_username": "username", "sentinel_password": "password"}
_LOGIN = "its login has a character reserved in URLs: write / as %2F, # as %23, ? as %3F, [ as %5B."


@dataclass(frozen=True, kw_only=True)
class RedisUrl:
    """Parsed Redis URL.

    Parameters
    ----------
    hosts
        Hosts and ports of the sentinels; empty for one server.
    service
        The sentinels' name of the master.
    options
        Arguments of redis-py's connections to the servers, without the host.
    login
        Credentials of the sentinels.
    replicas
        Replicas that must have a job before it is accepted.

    """

    url: str
    encrypted: bool
    options: dict[str, Any]
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    login: dict[str, str]
    replicas: int = 0


def parse_redis_url(url: str) -> RedisUrl:
    """Parse a URL.

    Raises
    ------
    ValueError
        If the URL is malformed, or names an unreadable certificate or key file.

    """
    url, replicas = _without_replicas(url)
    scheme, _, rest = url.partition("://")
    encrypted = scheme in _ENCRYPTED
    if scheme not in _SENTINELS:
        options = _with_files(_parse(url))
        return RedisUrl(url=url, encrypted=encrypted, options=options, login={}, replicas=replicas)
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    login, at, listed = authority.rpartition("@")
    if not at and "@" in path:
        raise ValueError(_LOGIN)
    try:
        hosts = tuple(_host(text) for text in listed.split(","))
    except ValueError:
        if "@" in query:  # the message would quote the start of the password
            raise ValueError(_LOGIN) from None
        raise
    service, database = _service(path)
    parsed = _parse(f"redis{'s' * encrypted}://{login}{at}host/{database}?{query}")
    options = {name: value for name, value in parsed.items() if name not in {"host", "connection_class"}}
    credentials = {name: options.pop(option) for option, name in _SENTINEL_LOGIN.items() if option in options}
    return RedisUrl(
        url=url,
        encrypted=encrypted,
        options=_with_files(options),
        hosts=hosts,
        service=service,
        login=credentials,
        replicas=replicas,
    )


def _without_replicas(url: str) -> tuple[str, int]:
    """Return a URL without the parameter `replicas`, which redis-py does not know, and its value."""
    place, _, query = url.partition("?")
    fields = query.split("&") if query else []
    values = [field.removeprefix("replicas=") for field in fields if field.startswith("replicas=")]
    if any(not (value.isascii() and value.isdecimal()) for value in values):
        raise ValueError("replicas= must be a number, as ?replicas=1.")
    rest = "&".join(field for field in fields if not field.startswith("replicas="))
    return f"{place}?{rest}" if rest else place, int(values[-1]) if values else 0


def _parse(url: str) -> dict[str, Any]:
    """Parse a URL with redis-py; replace errors of Python that quote the password."""
    try:
        return dict(parse_url(url))  # type: ignore[no-untyped-call] # redis-py's
    except ValueError as error:
        if "@" in url and not str(error).startswith(("Redis URL must", "Invalid value for")):
            raise ValueError(_LOGIN) from None
        raise


def _host(text: str) -> tuple[str, int]:
    host, port = "", _PORT
    with suppress(ValueError):
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port or _PORT
    if not host:
        raise ValueError(f"{text!r} is no host:port; name them as host1:{_PORT},host2:{_PORT}.")
    return host, port


def _service(path: str) -> tuple[str, int]:
    """Return service and database of a sentinel URL's path."""
    service, _, database = path.partition("/")
    if not service or not (database or "0").isdecimal():
        raise ValueError("it must name the service of the sentinels, as sentinel://host1,host2/service/0.")
    return unquote(service), int(database or 0)


def _with_files(options: dict[str, Any]) -> dict[str, Any]:
    """Return options after a check of their files, which otherwise would fail every request."""
    for name in _FILES:
        if name in options and not os.access(options[name], os.R_OK):
            raise ValueError(f"{name}={options[name]} cannot be read.")
    return options
