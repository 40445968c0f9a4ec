"""Write glle/types.py, the client's types, from openapi.json: `python -m openapi.client_types`.

Every model becomes a `TypedDict`. So do the keyword arguments of the client's methods: a body or a query without the
members that are positional arguments of the method.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from datamodel_code_generator import Formatter, InputFileType, LiteralType, PythonVersion, generate
from datamodel_code_generator.enums import DataModelType

CONTRACT = Path(__file__).with_name("openapi.json")
TYPES = CONTRACT.parent.parent / "glle" / "types.py"
HEAD = '"""Requests and responses of the API. Generated from openapi.json by openapi/client_types.py; do not edit."""'

# Options of a method: the model of its body, or the path of its query, and the members with separate arguments.
BODIES = {
    "SyntheticOptions": ("SyntheticIn", {"name", "n"}),
    "FitOptions": ("PosteriorIn", {"dataset", "neighbors"}),
    "DrawsOptions": ("DrawsIn", {"count"}),
    "TransformOptions": ("TransformIn", {"dataset", "data"}),
    "ReconstructionsOptions": ("ReconstructionsIn", {"count"}),
    "CalibrationOptions": ("CalibrationIn", set[str]()),
    "AdviceOptions": ("AdviceIn", {"dataset"}),
    "SpreadOptions": ("SpreadIn", {"labels"}),
    "CompareOptions": ("ComparisonIn", {"dataset", "methods", "labels", "truth"}),
}
QUERIES = {
    "DatasetsOptions": ("/v1/datasets", {"limit", "cursor"}),
    "UploadOptions": ("POST /v1/datasets", {"wait"}),
    "PosteriorsOptions": ("/v1/posteriors", {"limit", "cursor"}),
    "JobsOptions": ("/v1/jobs", {"limit", "cursor"}),
    "MethodsOptions": ("/v1/methods", set[str]()),
    "DrawOptions": ("/v1/posteriors/{id}/draws/{index}", {"wait"}),
    "SummaryOptions": ("/v1/posteriors/{id}/summary", {"count", "wait"}),
}


def types_text(contract: dict[str, Any]) -> str:
    """Return the text of glle/types.py for a contract."""
    schemas = {name: _open(schema) for name, schema in schemas_with_options(contract).items()}
    text = generate(
        json.dumps({**contract, "paths": {}, "components": {"schemas": schemas}}),
        input_file_type=InputFileType.OpenAPI,
        output_model_type=DataModelType.TypingTypedDict,
        target_python_version=PythonVersion.PY_311,
        enum_field_as_literal=LiteralType.All,
        use_schema_description=True,
        use_field_description=True,
        use_standard_collections=True,
        use_union_operator=True,
        disable_timestamp=True,
        custom_file_header=HEAD,
        formatters=[Formatter.RUFF_CHECK, Formatter.RUFF_FORMAT],
        settings_path=CONTRACT.parent.parent,
    )
    assert isinstance(text, str)
    return text.rstrip() + "\n"


def schemas_with_options(contract: dict[str, Any]) -> dict[str, Any]:
    """Return the models of a contract by name, and the options of the client's methods."""
    schemas = dict(contract["components"]["schemas"])
    for name, (body, arguments) in BODIES.items():
        members = {key: value for key, value in schemas[body]["properties"].items() if key not in arguments}
        schemas[name] = _object(f"Keyword arguments, of `{body}`.", members)
    for name, (path, arguments) in QUERIES.items():
        method, _, url = path.rpartition(" ")
        operation = contract["paths"][url][method.lower() or "get"]
        query = [parameter for parameter in operation["parameters"] if parameter["in"] == "query"]
        members = {member["name"]: member["schema"] for member in query if member["name"] not in arguments}
        schemas[name] = _object(f"Keyword arguments, the query of {method or 'GET'} {url}.", members)
    return schemas


def _open(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without `additionalProperties`, because closed TypedDicts need a later Python."""
    return {name: value for name, value in schema.items() if name != "additionalProperties"}


def _object(description: str, members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": description, "properties": members}


def main() -> int:
    """Write the types."""
    TYPES.write_text(types_text(json.loads(CONTRACT.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
