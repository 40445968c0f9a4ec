"""Answers that never change: a strong ETag, a year in the caches, and 304 for a client that has its copy."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from service.encoding.compression import plain_tag

if TYPE_CHECKING:
    from fastapi import Request

SCALE_HEADER = "Glle-Scale"  # which scale an answer is at, when the request said auto, or a binary body cannot say
# Private: a cache that several people share would give it to those who have no key.
_YEAR = "private, max-age=31536000, immutable"


def immutable_headers(sha256: str, media: str, dtype: str, part: str = "") -> dict[str, str]:
    """Return the headers of content with this digest, in this representation; `part` names a slice of it."""
    tag = hashlib.sha256(" ".join(filter(None, (sha256, media, dtype, part))).encode()).hexdigest()[:32]
    return {"ETag": f'"{tag}"', "Cache-Control": _YEAR, "Vary": "Accept"}


def body_headers(body: str) -> dict[str, str]:
    """Return the headers of a body that may change: its own digest, to be asked for each time."""
    return {"ETag": f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"', "Cache-Control": "no-cache"}


def scale_header(*scales: float) -> dict[str, str]:
    """Return the header that tells the scale of each draw's axis, to the last bit."""
    return {SCALE_HEADER: ", ".join(repr(float(scale)) for scale in scales)}


RANGE_RESPONSES: dict[int | str, dict[str, Any]] = {
    206: {"description": "The Range that was asked for, of npy."},
    304: {"description": "The client's copy is good."},
}
SCALE_DOCUMENTED = {SCALE_HEADER: {"description": "The scale it is at, a number.", "schema": {"type": "string"}}}


def is_not_modified(request: Request, headers: dict[str, str]) -> bool:
    """Say whether If-None-Match names the ETag of these headers."""
    given = [plain_tag(part.strip().removeprefix("W/")) for part in request.headers.get("if-none-match", "").split(",")]
    return headers["ETag"] in given or "*" in given
