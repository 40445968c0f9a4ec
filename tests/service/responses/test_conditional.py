"""Headers of conditional requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.encoding.arrays import JSON, NPY
from service.responses import conditional
from service.responses.conditional import immutable_headers

if TYPE_CHECKING:
    import pytest


def test_the_etag_of_json_names_its_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another encoder may write other bytes of the same content, so only the ETag of JSON differs."""
    before = {media: immutable_headers("5a", media, "float64")["ETag"] for media in (JSON, NPY)}
    monkeypatch.setattr(conditional, "JSON_ENCODER", "another-1.0")
    after = {media: immutable_headers("5a", media, "float64")["ETag"] for media in (JSON, NPY)}
    assert after[JSON] != before[JSON]
    assert after[NPY] == before[NPY]
