"""Headers of conditional requests: strong ETags, caching for immutable content, and 304."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from service.encoding.arrays import JSON, JSON_ENCODER, NPY
from service.encoding.compression import matches_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import Request

SCALE_HEADER = "Glle-Scale"  # for requests with scale=auto and for binary bodies
NOTES_HEADER = "Glle-Notes"  # for scale=auto
_YEAR = "private, max-age=31536000, immutable"  # private, because a shared cache would serve clients without a key


def immutable_headers(sha256: str, media: str, dtype: str, part: str = "") -> dict[str, str]:
    """Return the headers of one representation of content with this digest; `part` identifies a slice."""
    encoder = JSON_ENCODER if media == JSON else ""  # equal strong ETags promise equal bytes
    tag = hashlib.sha256(" ".join(filter(None, (sha256, media, encoder, dtype, part))).encode()).hexdigest()[:32]
    return {"ETag": f'"{tag}"', "Cache-Control": _YEAR, "Vary": "Accept"}


def body_headers(body: str) -> dict[str, str]:
    """Return the headers of a mutable body: the ETag of its digest, to be revalidated at each use."""
    return {"ETag": f'"{hashlib.sha256(body.encode()).hexdigest()[:32]}"', "Cache-Control": "no-cache"}


def scale_header(*scales: float) -> dict[str, str]:
    """Return the header with the scales of the draws, exact to the last bit."""
    return {SCALE_HEADER: ", ".join(repr(float(scale)) for scale in scales)}


def notes_header(notes: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the header with the codes of the doubts about a calibrated scale, or none."""
    return {NOTES_HEADER: ", ".join(note["code"] for note in notes)} if notes else {}


RANGE_RESPONSES: dict[int | str, dict[str, Any]] = {
    206: {
        "description": "The requested Range of npy.",
        "content": {NPY: {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The client's copy is current."},
}
SCALE_DOCUMENTED = {
    SCALE_HEADER: {"description": "The scale, a number.", "schema": {"type": "string"}},
    NOTES_HEADER: {
        "description": "Codes of the doubts about the scale, if it is auto and has any: scale-saturated,"
        " scale-not-matched, scale-poorly-correlated.",
        "schema": {"type": "string"},
    },
}


def is_not_modified(request: Request, headers: dict[str, str]) -> bool:
    """Return whether If-None-Match names the ETag of these headers."""
    return matches_tag(request.headers.get("if-none-match", "").encode("latin-1"), headers["ETag"].encode())
