"""Documentation page: the OpenAPI as one HTML page without external scripts, styles or fonts."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{border-bottom:1px solid #ccc;margin-top:2.5rem}code{background:#f3f3f3;padding:.1em .3em}
summary{cursor:pointer;padding:.3rem 0}summary b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;margin:.5rem 0 1rem}td,th{text-align:left;vertical-align:top;
padding:.2rem .8rem .2rem 0}p{white-space:pre-line}details{border-bottom:1px solid #eee}
"""

# The page has no script and loads nothing; its one style is inline.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page(openapi: dict[str, Any]) -> str:
    """Return the HTML page of an OpenAPI document."""
    info = openapi["info"]
    operations = [
        (method, path, operation) for path, methods in openapi["paths"].items() for method, operation in methods.items()
    ]
    tags = list(dict.fromkeys(operation["tags"][0] for _, _, operation in operations))
    sections = [
        f"<h2>{escape(tag)}</h2>"
        + "".join(_operation(m, p, operation) for m, p, operation in operations if operation["tags"][0] == tag)
        for tag in tags
    ]
    models = "".join(_model(name, schema) for name, schema in openapi["components"]["schemas"].items())
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
        f"<style>{_STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])}</p><p>Machine-readable: <a href=/openapi.json>/openapi.json</a></p>"
        + "".join(sections)
        + f"<h2>models</h2>{models}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = [
        (f"{p['name']} ({p['in']})", _type(p["schema"]), p.get("description") or p["schema"].get("description", ""))
        for p in operation.get("parameters", [])
    ]
    bodies = operation.get("requestBody", {}).get("content", {})
    body = [(media, _type(content.get("schema", {})), _example(content)) for media, content in bodies.items()]
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
        + "</details>"
    )


def _model(name: str, schema: dict[str, Any]) -> str:
    rows = [
        (member, _type(value), value.get("description", "")) for member, value in schema.get("properties", {}).items()
    ]
    title = f"<summary><code>{escape(name)}</code> {escape(schema.get('description', ''))}</summary>"
    return f'<details id="{escape(name)}">{title}{_table("", rows)}</details>'


def _table(title: str, rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    body = "".join(f"<tr><td><code>{escape(name)}</code><td>{kind}<td>{escape(text)}" for name, kind, text in rows)
    return f"{f'<h4>{title}</h4>' if title else ''}<table>{body}</table>"


def _content(response: dict[str, Any]) -> str:
    return "<br>".join(
        f"{escape(media)} {_type(content.get('schema', {}))}" for media, content in response.get("content", {}).items()
    )


def _example(content: dict[str, Any]) -> str:
    return json.dumps(content["example"]) if "example" in content else ""


def _type(schema: dict[str, Any]) -> str:
    """Return a summary of a schema as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(escape(json.dumps(choice)) for choice in schema["enum"])
    kind = schema.get("type", "")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if kind == "array" and "items" in schema:
        words += " of " + _type(schema["items"])
    bounds = [f"{sign} {schema[name]}" for name, sign in _BOUNDS if name in schema]
    default = [f"default {escape(json.dumps(schema['default']))}"] if "default" in schema else []
    return ", ".join([words, *map(escape, bounds), *default])


_BOUNDS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="))
