"""Pictures that the service draws, as bytes or files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glle.transport.calls import Call

if TYPE_CHECKING:
    from glle.transport.calls import Steps
    from glle.transport.session import Session


def pictured(
    session: Session, path: str, query: dict[str, Any], out: str | Path | None, timeout: float | None
) -> Steps[bytes]:
    """Return a picture once it is drawn; with `out` it is written to that file, too."""
    call = Call("GET", path, query, accept="image/*")
    body: bytes = (yield from session.settled(call, timeout)).body
    if out is not None:
        Path(out).write_bytes(body)
    return body
