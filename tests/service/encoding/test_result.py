"""Results of named arrays: headers of conditional requests, and conversions."""

from __future__ import annotations

import numpy as np
import pytest

from service.encoding import arrays
from service.encoding.arrays import JSON, NPY, NPZ
from service.encoding.result import ArraysResult, immutable_headers
from worker.base.problems import ProblemError


def test_the_etag_of_json_names_its_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another encoder may write other bytes of the same content, so only the ETag of JSON differs."""
    before = {media: immutable_headers("5a", media, "float64")["ETag"] for media in (JSON, NPY)}
    monkeypatch.setattr(arrays, "JSON_ENCODER", "another-1.0")
    after = {media: immutable_headers("5a", media, "float64")["ETag"] for media in (JSON, NPY)}
    assert after[JSON] != before[JSON]
    assert after[NPY] == before[NPY]


@pytest.mark.parametrize("media", [JSON, NPY, NPZ])
def test_no_value_becomes_infinite_in_float32(media: str) -> None:
    """Every media type refuses it; stored arrays keep their dtype."""
    result = ArraysResult(arrays={"x": np.array([[1e39]])}, stored={"y": np.array([1e39])}, main="x")
    assert result.response(media, "float64").status_code == 200
    with pytest.raises(ProblemError, match="float32"):
        result.response(media, "float32")
    finite = ArraysResult(arrays={"x": np.ones((1, 1))}, stored=result.stored, main="x")
    assert finite.response(media, "float32").status_code == 200
