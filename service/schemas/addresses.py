"""Path prefix of the API: a proxy may serve the API at ``https://host/glle/``, and remove ``/glle`` from each request.

Inside the service no path has the prefix. Paths that are sent to the client, in links and `Location`, are made with
`address`, which adds the prefix of the request.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

from worker.base.settings import SettingsError

_PREFIX: ContextVar[str] = ContextVar("prefix", default="")
_SEGMENT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,100}")  # no escapes, and no `.` or `..`
MAX_SEGMENTS = 8


def prefix() -> str:
    """Return the path prefix of the request in progress, such as ``/glle``, or an empty text."""
    return _PREFIX.get()


def set_prefix(text: str) -> None:
    """Set the path prefix of the request in progress."""
    _PREFIX.set(text)


def address(path: str) -> str:
    """Return a path of the API, such as ``/v1/jobs/job_1``, as the client must send it: with the request's prefix."""
    return _PREFIX.get() + path


def normal_prefix(text: str) -> str | None:
    """Normalize a path prefix, such as ``glle/`` to ``/glle``; return None if the text is not a path prefix.

    A text with an empty segment between slashes, a host, a query or an escape is no prefix: in a `Location`, ``//host``
    would lead to another service.
    """
    stripped = text.strip()
    if stripped in {"", "/"}:
        return ""
    if stripped.startswith("//"):
        return None
    segments = stripped.removeprefix("/").removesuffix("/").split("/")
    if len(segments) > MAX_SEGMENTS or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        return None
    return "/" + "/".join(segments)


def root_path(setting: str) -> str:
    """Return the normalized path prefix in GLLE_ROOT_PATH; raise `SettingsError` if the setting is no path prefix."""
    if (root := normal_prefix(setting)) is None:
        raise SettingsError(f"GLLE_ROOT_PATH: {setting!r} is not a path. Give a path such as /glle, without a host.")
    return root
