"""What the framework leaves out of the contract: links from answers to the next requests, headers, examples, bounds."""

from __future__ import annotations

from typing import Any

from service.schemas.resources import MAX_COUNTER

_DATASET = "ds_127ecc1c5da53ccc7b4b569022a22285"

_NAMING = {"name": "roll", "tags": ["demo"]}

# Bodies that work as they stand, in this order, but for the ids.
EXAMPLES: dict[str, dict[str, Any]] = {
    "synthetic": {"name": "swiss_roll", "n": 500, "seed": 0},
    "fit": {"dataset": _DATASET, "n_neighbors": 10, "n_components": 2},
    "draw_many": {"count": 8, "seed": 0, "scales": [0.5, 1.0]},
    "transform": {"data": [[0.1, 2.0, 0.3], [0.2, 1.0, 0.4]], "draws": 8},
    "reconstructions": {"count": 4, "seed": 0},
    "calibration": {"half_samples": 20, "draws": 40},
    "advice": {"dataset": _DATASET, "n_neighbors": [6, 8, 10]},
    "embed": {"dataset": _DATASET, "method": "pca", "parameters": {"n_components": 2}},
    "estimate": {"method": "lle", "n": 10000, "d": 3},
    "compare": {"dataset": _DATASET, "methods": [{"method": "pca"}, {"method": "lle"}]},
    "rename_dataset": _NAMING,
    "rename_posterior": _NAMING,
}

# Name of a link, and the operation that it leads to with what body; without one, by the id in the path.
Links = dict[str, tuple[str, dict[str, str]]]

_OF_DATASET: Links = {
    "describe_dataset": ("get_dataset", {}),
    "read_data": ("get_data", {}),
    "fit": ("fit", {"dataset": "$response.body#/id"}),
    "advise": ("advice", {"dataset": "$response.body#/id"}),
    "embed": ("embed", {"dataset": "$response.body#/id", "method": "pca"}),
}
_OF_POSTERIOR: Links = {
    "describe_posterior": ("get_posterior", {}),
    "read_arrays": ("get_arrays", {}),
    "draw_one": ("draw_one", {}),
    "draw_many": ("draw_many", {}),
    "summarise": ("summary", {}),
    "place_new_points": ("transform", {}),
    "generate_data": ("reconstructions", {}),
    "calibrate": ("calibration", {}),
}
_OF_EMBEDDING: Links = {"read_coordinates": ("get_coordinates", {})}
_OF_JOB: Links = {
    "follow": ("get_job", {}),
    "fetch_result": ("get_result", {}),
    "cancel": ("cancel", {}),
}
# The model of an answer, and what its `id` leads to.
_LINKS = {"DatasetOut": _OF_DATASET, "EmbeddingOut": _OF_EMBEDDING, "PosteriorOut": _OF_POSTERIOR, "JobOut": _OF_JOB}

_HEADERS = {
    "Location": ("string", "Where what was made is, or the job that makes it."),
    "Retry-After": ("integer", "Seconds after which to ask again."),
}
_HEADERS_OF = {"201": ("Location",), "202": ("Location", "Retry-After"), "503": ("Retry-After",)}


def complete(contract: dict[str, Any]) -> dict[str, Any]:
    """Return the contract with what is left out of it; once more changes nothing."""
    _exact(contract)
    contract["components"]["links"] = {
        name: _link(*target) for targets in _LINKS.values() for name, target in targets.items()
    }
    contract["components"]["headers"] = {
        name: {"description": told, "schema": {"type": kind}} for name, (kind, told) in _HEADERS.items()
    }
    operations = [operation for methods in contract["paths"].values() for operation in methods.values()]
    for operation in operations:
        for body in _command_bodies(operation):
            if (example := EXAMPLES.get(operation["operationId"])) is not None:
                body["example"] = example
        for status, response in operation["responses"].items():
            if names := _HEADERS_OF.get(status):
                given = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
                response["headers"] = {**response.get("headers", {}), **given}
            schema = response.get("content", {}).get("application/json", {}).get("schema", {})
            if targets := _LINKS.get(schema.get("$ref", "").rpartition("/")[2]):
                response["links"] = {name: {"$ref": f"#/components/links/{name}"} for name in targets}
    return contract


def _command_bodies(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON bodies of a command, which nothing but JSON may be."""
    content = operation.get("requestBody", {}).get("content", {})
    return list(content.values()) if all(media.endswith("json") for media in content) else []


def _link(operation: str, body: dict[str, str]) -> dict[str, Any]:
    if body:
        return {"operationId": operation, "requestBody": body}
    return {"operationId": operation, "parameters": {"id": "$response.body#/id"}}


def _exact(schema: Any) -> None:
    """Make the bounds of integers integers: the framework writes them as floats, and 2^64 - 1 is none."""
    if isinstance(schema, list):
        for part in schema:
            _exact(part)
    elif isinstance(schema, dict):
        for part in schema.values():
            _exact(part)
        if schema.get("type") == "integer":
            for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
                if isinstance(schema.get(name), float):
                    schema[name] = MAX_COUNTER if schema[name] == float(MAX_COUNTER) else int(schema[name])
