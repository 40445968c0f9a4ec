"""Write glle/types.py, the client's types, from openapi.json: `python -m openapi.client_types`.

Every model becomes a `TypedDict`. So do the keyword arguments of the client's methods: a body or a query without the
members that are positional arguments of the method. Annotations have their descriptions, for the help of the commands.
`make setup` and builds run it, so it imports only the standard library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CONTRACT = Path(__file__).with_name("openapi.json")
TYPES = CONTRACT.parent.parent / "glle" / "types.py"
HEAD = '''"""Requests and responses of the API. Generated from openapi.json by openapi/client_types.py; do not edit."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict
'''
_PRIMITIVES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

# Options of a method: the model of its body, or the path of its query, and the members with separate arguments.
BODIES = {
    "SyntheticOptions": ("SyntheticIn", {"name", "n"}),
    "FitOptions": ("PosteriorIn", {"dataset", "neighbors"}),
    "DrawsOptions": ("DrawsIn", {"n_draws"}),
    "TransformOptions": ("TransformIn", {"dataset", "data"}),
    "ReconstructionsOptions": ("ReconstructionsIn", {"n_draws"}),
    "CalibrationOptions": ("CalibrationIn", set[str]()),
    "AuditOptions": ("AuditIn", {"dataset", "coordinates", "embedding", "posterior", "method", "parameters", "labels"}),
    "CompareOptions": ("ComparisonIn", {"dataset", "methods", "labels", "truth"}),
}
QUERIES = {
    "DatasetsOptions": ("/v1/datasets", {"limit", "cursor"}),
    "UploadOptions": ("POST /v1/datasets", {"wait"}),
    "PosteriorsOptions": ("/v1/posteriors", {"limit", "cursor"}),
    "EmbeddingsOptions": ("/v1/embeddings", {"limit", "cursor"}),
    "JobsOptions": ("/v1/jobs", {"limit", "cursor"}),
    "MethodsOptions": ("/v1/methods", set[str]()),
    "DrawOptions": ("/v1/posteriors/{id}/draws/{index}", {"wait"}),
    "WeightsOptions": ("/v1/posteriors/{id}/draws/{index}/weights", {"points", "wait"}),
    "SummaryOptions": ("/v1/posteriors/{id}/summary", {"n_draws", "wait"}),
}


def types_text(contract: dict[str, Any]) -> str:
    """Return the text of glle/types.py for a contract."""
    schemas = schemas_with_options(contract)
    models = [_model(name, schema) for name, schema in schemas.items() if "properties" in schema]
    aliases = [
        f"{name}: TypeAlias = {_type(schema)}\n{_docstring(schema, '')}"
        for name, schema in schemas.items()
        if "properties" not in schema
    ]
    return "\n\n".join([HEAD, *models, *aliases])  # aliases are evaluated, so after the models


def _model(name: str, schema: dict[str, Any]) -> str:
    """Return a schema as a `TypedDict`."""
    lines = [f"class {name}(TypedDict):\n", _docstring(schema, "    ")]
    for member, member_schema in schema["properties"].items():
        hint = _type(member_schema)
        if name.endswith("Options") and "description" in member_schema:
            hint = f"Annotated[{hint}, {_literal(member_schema['description'])}]"
        hint = hint if member in schema.get("required", ()) else f"NotRequired[{hint}]"
        lines += [f"    {member}: {hint}\n", _docstring(member_schema, "    ")]
    return "".join(lines)


def _type(schema: dict[str, Any]) -> str:
    """Return a schema as a type expression."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema or "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema.get('enum', [schema.get('const')])))}]"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"list[{_type(schema.get('items', {}))}]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {_type(values) if isinstance(values, dict) else 'Any'}]"
    return _PRIMITIVES[schema["type"]] if "type" in schema else "Any"


def _docstring(schema: dict[str, Any], indent: str) -> str:
    """Return the description of a schema as a string literal, or nothing."""
    text = schema.get("description")
    return f"{indent}{_literal(text)}\n" if text else ""


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def schemas_with_options(contract: dict[str, Any]) -> dict[str, Any]:
    """Return the models of a contract by name, and the options of the client's methods."""
    schemas = dict(contract["components"]["schemas"])
    for name, (body, arguments) in BODIES.items():
        members = {key: value for key, value in schemas[body]["properties"].items() if key not in arguments}
        schemas[name] = _object(f"Keyword arguments of a client method: members of the request body `{body}`.", members)
    for name, (path, arguments) in QUERIES.items():
        method, _, url = path.rpartition(" ")
        operation = contract["paths"][url][method.lower() or "get"]
        query = [parameter for parameter in operation["parameters"] if parameter["in"] == "query"]
        members = {member["name"]: member["schema"] for member in query if member["name"] not in arguments}
        schemas[name] = _object(f"Keyword arguments of a client method: the query of {method or 'GET'} {url}.", members)
    return schemas


def _object(description: str, members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": description, "properties": members}


def main() -> int:
    """Write the types."""
    TYPES.write_text(types_text(json.loads(CONTRACT.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
