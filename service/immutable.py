"""Answers that never change: a strong ETag, a year in the caches, and 304 for a client that has its copy."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import Request

SCALE_HEADER = "Glle-Scale"  # which scale an answer is at, when the request said auto, or a binary body cannot say
# Private: a cache that several people share would give it to those who have no key.
_YEAR = "private, max-age=31536000, immutable"


def immutable_headers(sha256: str, media: str, dtype: str) -> dict[str, str]:
    """Return the headers of content with this digest, in this representation."""
    tag = hashlib.sha256(f"{sha256} {media} {dtype}".encode()).hexdigest()[:32]
    return {"ETag": f'"{tag}"', "Cache-Control": _YEAR, "Vary": "Accept"}


def scale_header(*scales: float) -> dict[str, str]:
    """Return the header that tells the scale of each draw's axis, to the last bit."""
    return {SCALE_HEADER: ", ".join(repr(float(scale)) for scale in scales)}


SCALE_DOCUMENTED = {SCALE_HEADER: {"description": "The scale it is at, a number.", "schema": {"type": "string"}}}


def client_has_it(request: Request, headers: dict[str, str]) -> bool:
    """Say whether If-None-Match names the ETag of these headers."""
    given = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    return headers["ETag"] in given or "*" in given
