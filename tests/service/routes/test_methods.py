"""The methods and their schemas."""

from __future__ import annotations

from copy import copy
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from openapi_schema_validator import OAS31Validator

from glle_engine import FitSpec
from glle_engine import methods as registry
from glle_engine.metrics.registry import SCORES
from service.routes.methods import catalog, embedding_method
from service.schemas.embeddings import EmbeddingIn
from service.schemas.resources import PosteriorIn
from service.submission.planning import Plan

if TYPE_CHECKING:
    import httpx


def test_list_and_each(client: httpx.Client) -> None:
    """The list and each method have equal descriptions; a filter selects methods with embeddings."""
    items = client.get("/v1/methods").json()["items"]
    assert [item["name"] for item in items] == ["em", "direct", *registry.METHODS]
    for item in items:
        assert client.get(item["links"]["self"]).json() == item
    posteriors, embeddings = (
        client.get(f"/v1/methods?makes={makes}").json()["items"] for makes in ("posterior", "embedding")
    )
    assert posteriors + embeddings == items
    for item in posteriors:
        assert [variant["name"] for variant in item["variants"]] == ["constrained", "published"]
        assert any("arXiv:2104.01525" in citation for citation in item["citations"])
    assert client.get("/v1/methods/TSNE").json() == client.get("/v1/methods/t-sne").json()
    answer = client.get("/v1/methods/izomap")
    assert (answer.status_code, answer.json()["details"]) == (404, {"methods": list(catalog())})
    assert answer.json()["remedy"].startswith("Did you mean isomap?")


@pytest.mark.parametrize("name", ["em", "direct"])
def test_schema_is_that_of_the_request(name: str) -> None:
    """Its defaults are the engine's, its method is constant, and omitted parameters have no meaning with it."""
    schema = catalog()[name].parameters
    defaults = {member: payload["default"] for member, payload in schema["properties"].items() if "default" in payload}
    assert schema["properties"]["method"]["const"] == name
    assert schema["required"] == ["dataset", "method"]
    assert schema["additionalProperties"] is False
    engine = asdict(FitSpec())
    assert defaults == {member: engine.get(member) for member in defaults}  # given neighbors are data, with None
    unused = {"em": {"mean"}, "direct": {"covariance", "max_iter", "tol"}}[name]
    assert set(PosteriorIn.model_fields) - set(schema["properties"]) == unused
    parameters = {member: value for member, value in defaults.items() if member != "method"}
    spec = PosteriorIn(dataset="ds_x", method=name, **parameters).fit_spec()
    assert spec == FitSpec(method=name)  # type: ignore[arg-type] # of the registry


@pytest.mark.parametrize("name", registry.METHODS)
def test_schema_of_an_embedding_has_the_parameters_of_its_method(name: str) -> None:
    """The schema's defaults are a valid request, with the meaning of the method's defaults."""
    schema, method = catalog()[name].parameters, registry.method(name)
    own = schema["properties"]["parameters"]
    parameters = {member: payload["default"] for member, payload in own["properties"].items()}
    request: dict[str, Any] = {
        "dataset": "ds_x",
        "method": name,
        "parameters": parameters,
        **({"labels": "ds_y"} if method.labels else {}),
    }
    checks = OAS31Validator(schema)
    assert list(checks.iter_errors(request)) == []
    assert list(checks.iter_errors({**request, "parameters": {"nope": 1}})) != []
    assert list(checks.iter_errors({**request, "labels": None})) != [] or not method.labels
    assert Plan.of(EmbeddingIn(**request)).spec == method.spec()


def test_a_missing_extra_is_listed(client: httpx.Client) -> None:
    """A method without its library has the extra to install."""
    changed = copy(registry.method("pca"))
    vars(changed).update(libraries=("no_such_library",), extra="tsne")
    method = embedding_method(changed)
    assert (method.available, method.missing_extra) == (False, "tsne")
    assert client.get("/v1/methods/lle").json()["available"]


def test_scores_are_listed(client: httpx.Client) -> None:
    """Each score has its needs and its better direction."""
    items = client.get("/v1/scores").json()["items"]
    assert [item["name"] for item in items] == list(SCORES)
    assert {item["needs"] for item in items} <= {"nothing", "labels", "truth"}
    assert {item["better"] for item in items} <= {"higher", "lower"}
