"""Additions to FastAPI's OpenAPI contract (problems, security, headers, examples, bounds), and its HTML page.

The page is HTML with one script and one style, both inline, and has a form for each route that sends the request.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.schemas.problems import failures
from service.schemas.resources import MAX_COUNTER, TableIn

if TYPE_CHECKING:
    from collections.abc import Callable

_DATASET = "ds_127ecc1c5da53ccc7b4b569022a22285"

_NAMING = {"name": "roll", "tags": ["demo"]}

# Example bodies by operation id. Each is accepted once the ids in the request are those of resources that exist.
EXAMPLES: dict[str, dict[str, Any]] = {
    "synthetic": {"name": "swiss_roll", "n": 500, "seed": 0},
    "fit": {"dataset": _DATASET, "n_neighbors": 10, "n_components": 2},
    "draw_many": {"n_draws": 8, "seed": 0, "scales": [0.5, 1.0]},
    "transform": {"data": [[0.1, 2.0, 0.3], [0.2, 1.0, 0.4]], "n_draws": 8},
    "reconstructions": {"n_draws": 4, "seed": 0},
    "calibration": {"n_resamples": 20, "n_draws": 40},
    "audit": {"dataset": _DATASET, "method": "pca"},
    "embed": {"dataset": _DATASET, "method": "pca", "parameters": {"n_components": 2}},
    "transform_embedding": {"data": [[0.1, 2.0, 0.3], [0.2, 1.0, 0.4]]},
    "compare": {"dataset": _DATASET, "methods": [{"method": "pca"}, {"method": "lle"}]},
    "rename_dataset": _NAMING,
    "rename_posterior": _NAMING,
    "rename_embedding": _NAMING,
}

_HEADERS = {
    "Location": ("string", "URL of the new resource, or of the job that makes it."),
    "Retry-After": ("integer", "Seconds until the next request."),
}
_HEADERS_OF = {"201": ("Location",), "202": ("Location", "Retry-After"), "503": ("Retry-After",)}


_FORM = "multipart/form-data"
_SECURITY = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key from `glle keys create`. Scopes: read (GET), write (all but metrics), admin. On loopback no "
    "key is needed until the first exists. Resources of other tenants are 404.",
}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{border-bottom:1px solid #ccc;margin-top:2.5rem}code{background:#f3f3f3;padding:.1em .3em}
summary{cursor:pointer;padding:.3rem 0}summary b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;margin:.5rem 0 1rem}td,th{text-align:left;vertical-align:top;
padding:.2rem .8rem .2rem 0}p{white-space:pre-line}details{border-bottom:1px solid #eee}
form{padding-bottom:1rem}label{display:block}textarea{width:100%;height:6rem}output{display:block;
white-space:pre-wrap;overflow:auto;max-height:24rem}#key{-webkit-text-security:disc}
"""
_SCRIPT = Path(__file__).with_name("try_out.js").read_text(encoding="utf-8")
_HASHES = [b64encode(sha256(text.encode()).digest()).decode() for text in (_STYLE, _SCRIPT)]
# The page loads nothing, and its script may send requests to this service only.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASHES[0]}'; script-src 'sha256-{_HASHES[1]}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_BOUNDS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="))


def complete(contract: dict[str, Any], scope_of: Callable[[str, str], str | None]) -> dict[str, Any]:
    """Add to FastAPI's OpenAPI contract, in place, what FastAPI leaves out; return the contract.

    A second call changes nothing. `scope_of` is called with a path and a method, and returns the scope that the API key
    of such a request must have, or None if the request needs no key.
    """
    _document_problems(contract, scope_of)
    _type_forms(contract)
    _restore_integer_bounds(contract)
    contract["components"]["headers"] = {
        name: {"description": text, "schema": {"type": json_type}} for name, (json_type, text) in _HEADERS.items()
    }
    for _, _, operation in _operations(contract):
        if (example := EXAMPLES.get(operation["operationId"])) is not None:
            for body in operation["requestBody"]["content"].values():
                body["example"] = example
        for status, response in operation["responses"].items():
            if "application/json" in (content := response.get("content", {})):  # client generators use the first type
                response["content"] = {"application/json": content["application/json"], **content}
            if names := _HEADERS_OF.get(status):
                headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
                response["headers"] = {**response.get("headers", {}), **headers}
    return contract


def _operations(contract: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (path, method, operation) for every operation in an OpenAPI document."""
    return [(path, method, each) for path, methods in contract["paths"].items() for method, each in methods.items()]


def _document_problems(contract: dict[str, Any], scope_of: Callable[[str, str], str | None]) -> None:
    """Add the bearer scheme, and to each operation its security and the errors that many routes share.

    FastAPI's own error schemas are removed.
    """
    contract["components"]["securitySchemes"] = {"bearer": _SECURITY}
    schemas = contract["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path, method, operation in _operations(contract):
        scope, responses = scope_of(path, method.upper()), operation["responses"]
        common = failures(
            _400="The body is not valid text.",
            _401="The key is missing or invalid: see WWW-Authenticate.",
            _403=f"The key lacks the scope {scope}; or, without keys, the host is not a "
            "loopback name, or the request is of another origin's page.",
            _414="The query is longer than 32 KiB.",
            _422="A parameter is out of range, unknown or repeated.",
            _429="A quota of the tenant is used up: see Retry-After.",
        )
        is_strict = path.startswith("/v1/") and "422" not in responses
        has_query = any(parameter["in"] == "query" for parameter in operation.get("parameters", ()))
        added = {
            400: "requestBody" in operation,
            414: has_query,
            422: is_strict or "HTTPValidationError" in str(responses.get("422")),
            **dict.fromkeys((401, 403, 429), scope is not None),
        }
        responses |= {str(status): common[status] for status, is_added in added.items() if is_added}
        operation["responses"] = dict(sorted(responses.items()))
        operation["security"] = [] if scope is None else [{"bearer": []}]


def _type_forms(contract: dict[str, Any]) -> None:
    """Add to the OpenAPI document `contract` the schema of a table as JSON, and the fields of each multipart form.

    The fields of a form are its file and all query parameters of its route except `wait`.
    """
    contract["components"]["schemas"]["TableIn"] = TableIn.model_json_schema()
    for _, _, operation in _operations(contract):
        form = operation.get("requestBody", {}).get("content", {}).get(_FORM)
        if form is not None:
            queries = [item for item in operation["parameters"] if item["in"] == "query" and item["name"] != "wait"]
            fields = {item["name"]: _without_null(item) for item in queries}
            form["schema"]["properties"] = {"file": form["schema"]["properties"]["file"], **fields}


def _without_null(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter without null: a form leaves an empty field out, and never sends null."""
    schema = {name: value for name, value in parameter["schema"].items() if name not in {"anyOf", "default"}}
    choices = [choice for choice in parameter["schema"].get("anyOf", ()) if choice != {"type": "null"}]
    return schema | (choices[0] if choices else {}) | {"description": parameter["description"]}


def _restore_integer_bounds(schema: Any) -> None:
    """Turn the bounds of integers into integers, because FastAPI writes floats, which cannot represent 2^64 - 1."""
    if isinstance(schema, list):
        for child in schema:
            _restore_integer_bounds(child)
    elif isinstance(schema, dict):
        for child in schema.values():
            _restore_integer_bounds(child)
        if schema.get("type") == "integer":
            for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
                if isinstance(schema.get(name), float):
                    schema[name] = MAX_COUNTER if schema[name] == float(MAX_COUNTER) else int(schema[name])


def page(openapi: dict[str, Any]) -> str:
    """Return an HTML page with the routes and models of an OpenAPI document."""
    info = openapi["info"]
    operations = _operations(openapi)
    tags = list(dict.fromkeys(operation["tags"][0] for _, _, operation in operations))
    sections = [
        f"<h2>{escape(tag)}</h2>" + "".join(_operation(*each) for each in operations if each[2]["tags"][0] == tag)
        for tag in tags
    ]
    models = "".join(_model(name, schema) for name, schema in openapi["components"]["schemas"].items())
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
        f"<style>{_STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])}</p><p>Machine-readable: <a href=openapi.json>/openapi.json</a></p>"
        "<p>Open a route, fill in its form and send it: the request goes to this service.</p>"
        "<label>API key, if the service has keys <input id=key autocomplete=off spellcheck=false></label>"
        + "".join(sections)
        + f"<h2>models</h2>{models}<script>{_SCRIPT}</script></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = [
        (f"{p['name']} ({p['in']})", _type(p["schema"]), p.get("description") or p["schema"].get("description", ""))
        for p in operation.get("parameters", [])
    ]
    bodies = operation.get("requestBody", {}).get("content", {})
    examples = {media: json.dumps(content["example"]) for media, content in bodies.items() if "example" in content}
    body = [(media, _type(content.get("schema", {})), examples.get(media, "")) for media, content in bodies.items()]
    responses = [
        (status, _content(response), response["description"]) for status, response in operation["responses"].items()
    ]
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
        f"{' (deprecated)' if operation.get('deprecated') else ''}"
        f"</summary><p>{escape(operation['description'])}</p>"
        + _table("Parameters", parameters)
        + _table("Body", body)
        + _table("Responses", responses)
        + _form(path, method, operation)
        + "</details>"
    )


def _form(path: str, method: str, operation: dict[str, Any]) -> str:
    """Return an HTML form that sends a request of an operation, with the operation's example as the body."""
    inputs = []
    for each in operation.get("parameters", []):
        name, flags = escape(each["name"]), [f"data-in={each['in']}"]
        flags += ["data-list=1"] * ('"type": "array"' in json.dumps(each["schema"])) + ["required"] * each.get(
            "required", False
        )
        if each["in"] in {"path", "query"}:
            inputs.append(f"<label>{name} <input name={name} {' '.join(flags)}></label>")
    content = operation.get("requestBody", {}).get("content", {})
    # The browser selects the first media type of the form, so types with an example come first.
    media = sorted((name for name in content if name != _FORM), key=lambda name: "example" not in content[name])
    if media:
        choices = "".join(f"<option>{escape(name)}</option>" for name in media)
        example = content[media[0]].get("example", "")
        text = example if isinstance(example, str) else json.dumps(example)
        inputs.append(f"<label>Content-Type <select>{choices}</select></label>")
        inputs.append(f"<label>body <textarea>{escape(text)}</textarea></label>")
    if any(not name.endswith("json") for name in media):
        inputs.append("<label>or a file <input type=file></label>")
    inputs.append("<button>Send</button><output></output>")
    return f'<form data-method={method.upper()} data-path="{escape(path)}">{"".join(inputs)}</form>'


def _model(name: str, schema: dict[str, Any]) -> str:
    rows = [
        (member, _type(value), value.get("description", "")) for member, value in schema.get("properties", {}).items()
    ]
    title = f"<summary><code>{escape(name)}</code> {escape(schema.get('description', ''))}</summary>"
    return f'<details id="{escape(name)}">{title}{_table("", rows)}</details>'


def _table(title: str, rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    body = "".join(f"<tr><td><code>{escape(name)}</code><td>{type_}<td>{escape(text)}" for name, type_, text in rows)
    return f"{f'<h4>{title}</h4>' if title else ''}<table>{body}</table>"


def _content(response: dict[str, Any]) -> str:
    return "<br>".join(
        f"{escape(media)} {_type(content.get('schema', {}))}" for media, content in response.get("content", {}).items()
    )


def _type(schema: dict[str, Any]) -> str:
    """Return HTML that summarizes a JSON schema: its type, bounds and default."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(escape(json.dumps(choice)) for choice in schema["enum"])
    json_type = schema.get("type", "")
    words = json_type if isinstance(json_type, str) else " or ".join(json_type)
    if "items" in schema:
        words += " of " + _type(schema["items"])
    bounds = [f"{sign} {schema[name]}" for name, sign in _BOUNDS if name in schema]
    default = [f"default {escape(json.dumps(schema['default']))}"] if "default" in schema else []
    return ", ".join([words, *map(escape, bounds), *default])
