"""The methods and their schemas."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from glle_engine import FitSpec
from service.methods import METHODS
from service.models import PosteriorIn

if TYPE_CHECKING:
    import httpx


def test_list_and_each(client: httpx.Client) -> None:
    """Every method of the engine is told, alone as in the list."""
    items = client.get("/v1/methods").json()["items"]
    assert [item["name"] for item in items] == ["em", "direct"]
    for item in items:
        assert client.get(item["links"]["self"]).json() == item
        assert [variant["name"] for variant in item["variants"]] == ["constrained", "published"]
        assert any("arXiv:2104.01525" in citation for citation in item["citations"])
    answer = client.get("/v1/methods/umap")
    assert (answer.status_code, answer.json()["details"]) == (404, {"methods": ["em", "direct"]})


@pytest.mark.parametrize("name", METHODS)
def test_schema_is_that_of_the_request(name: str) -> None:
    """Its defaults are the engine's, its method is constant, and what it leaves out has no meaning with it."""
    schema = METHODS[name].parameters()
    defaults = {member: told["default"] for member, told in schema["properties"].items() if "default" in told}
    assert schema["properties"]["method"]["const"] == name
    assert schema["required"] == ["dataset", "method"]
    assert schema["additionalProperties"] is False
    engine = asdict(FitSpec())
    assert defaults == {member: engine[member] for member in defaults}
    assert set(schema["properties"]) | METHODS[name].without == set(PosteriorIn.model_fields)
    given = {member: value for member, value in defaults.items() if member != "method"}
    spec = PosteriorIn(dataset="ds_x", method=name, **given).fit_spec()  # type: ignore[arg-type] # of the registry
    assert spec == FitSpec(method=name)  # type: ignore[arg-type] # likewise
