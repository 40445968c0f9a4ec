"""Write the signatures and docstrings of docs/reference/engine-api.md and client-api.md from the code.

A marker such as `<!-- api glle.fit glle.load -->` names the objects whose descriptions follow, up to `<!-- end -->`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import is_dataclass
from functools import cache
from inspect import Parameter, cleandoc, getdoc, getsource, isclass, isfunction, ismodule, signature
from itertools import pairwise
from pathlib import Path
from pydoc import locate
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, is_typeddict

from glle.transport.session import listing, operation
from glle_engine.base.parameters import Specification
from glle_engine.methods.base import OF_METHOD

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = [Path(__file__).parents[1] / "reference" / name for name in ("engine-api.md", "client-api.md")]
_BLOCK = re.compile(r"<!-- api (.*?) -->\n.*?<!-- end -->", re.DOTALL)
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_LISTS = {"Parameters", "Other Parameters", "Attributes", "Returns", "Raises"}
_MATH = re.compile(r"^\.\. math::\s*(.*(?:\n(?: {4}.*)?)*)", re.MULTILINE)
_WIDTH = 100  # of a signature in one line


def written(page: str) -> str:
    """Return the page with new descriptions after each marker."""

    def block(match: re.Match[str]) -> str:
        entries = "\n\n".join(entry(name) for name in match[1].split())
        return f"<!-- api {match[1]} -->\n{entries}\n<!-- end -->"

    return _BLOCK.sub(block, page)


def entry(path: str) -> str:
    """Return the Markdown that describes a function, a class or a module, which is found by its dotted path."""
    documented: Any = locate(path)
    assert documented is not None, path
    if ismodule(documented):
        names = getattr(documented, "__all__", None) or [name for name in vars(documented) if not name.startswith("_")]
        parts = [(name, getattr(documented, name)) for name in names]
        own_members = [(name, member) for name, member in parts if getattr(member, "__module__", "") == path]
        return "\n\n".join(
            [_text(getdoc(documented)), *(_described(f"{path}.{name}", member, 3) for name, member in own_members)]
        )
    return _described(path, documented, 3)


def _described(path: str, documented: Any, level: int) -> str:
    """Return the Markdown of a function or class: heading, signature, docstring and, for a class, public members."""
    name = path.rpartition(".")[2]
    parts = [f"{'#' * level} {path if level == 3 else name}"]
    if not isclass(documented) or not (is_dataclass(documented) or issubclass(documented, dict | Exception)):
        parts.append(f"```py\n{_signature(name, documented)}\n```")
    parts.append(_text(getdoc(documented), None if isclass(documented) else documented))
    if isclass(documented):
        parts.append("\n".join(_fields(documented)))
        members = list(_members(documented))
        values = [(member, value) for member, value in members if isinstance(value, property)]
        parts.append("\n".join(f"- `{member}`: {' '.join(_text(getdoc(value)).split())}" for member, value in values))
        others = [each for each in members if not isinstance(each[1], property)]
        parts += [_described(f"{path}.{member}", value, level + 1) for member, value in others]
        if bases := [f"`{_listed()[base]}`" for base in documented.__mro__[1:] if base in _listed()]:
            parts.append(f"It also has the members of {', '.join(bases)}.")
    return "\n\n".join(part for part in parts if part)


def _members(class_: type) -> Iterator[tuple[str, Any]]:
    """Yield name and member for the public methods and properties of a class that have a docstring.

    Members of its base classes are included unless a page describes the base class itself.
    """
    seen: set[str] = set()
    for base in class_.__mro__:
        is_elsewhere = base is not class_ and (base in _listed() or issubclass(base, Specification))
        if is_elsewhere or not base.__module__.startswith("glle"):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            member = value.method if isinstance(value, operation | listing) else getattr(value, "fn", value)
            member = getattr(member, "__func__", member)
            if isinstance(member, property) or (isfunction(member) and getdoc(member)):
                yield name, member


def _fields(class_: Any) -> Iterator[str]:
    """Yield a line for each parameter of a `Specification`, or for each member of a `TypedDict`."""
    if issubclass(class_, Specification):
        for name, parameter in class_.parameters().items():
            default = default_text(class_.__dataclass_fields__[name].default)
            yield f"- `{name}` ({parameter.domain()}; default {default}): {parameter.doc}"
    if is_typeddict(class_):
        (tree,) = ast.parse(getsource(class_)).body
        assert isinstance(tree, ast.ClassDef)
        for member, text in pairwise(tree.body):
            if isinstance(member, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(member.target, ast.Name)
                yield f"- `{member.target.id}`: {' '.join(str(ast.literal_eval(text.value)).split())}"


@cache
def _listed() -> dict[type, str]:
    """Return the classes that the pages describe, with their dotted paths."""
    names = [name for page in PAGES for block in _BLOCK.finditer(page.read_text("utf-8")) for name in block[1].split()]
    located = {name: locate(name) for name in names}
    return {each: name for name, each in located.items() if isclass(each)}


def _signature(name: str, documented: Any) -> str:
    """Return the signature with types and defaults; parameters of embedding methods are written as `**options`."""
    shown = signature(documented)
    texts, is_keyword, rest = list[str](), False, False
    positional = [each for each in shown.parameters.values() if each.kind is Parameter.POSITIONAL_ONLY]
    last_positional = positional[-1] if positional else None
    for each in shown.parameters.values():
        if each.default is OF_METHOD:
            rest = True
            continue
        if each.name == "self":
            continue
        if each.kind is Parameter.KEYWORD_ONLY and not is_keyword:
            texts.append("*")
            is_keyword = True
        texts.append(_parameter(each))
        if each is last_positional:
            texts.append("/")
    texts += ["**options" if "parameters" in shown.parameters else "**parameters"] * rest
    has_type = not isclass(documented) and shown.return_annotation is not shown.empty
    returned = f" -> {type_text(shown.return_annotation)}" if has_type else ""
    line = f"{name}({', '.join(texts)}){returned}"
    return line if len(line) <= _WIDTH else "\n".join([f"{name}(", *(f"    {text}," for text in texts), f"){returned}"])


def _parameter(each: Parameter) -> str:
    stars = "**" if each.kind is Parameter.VAR_KEYWORD else "*" if each.kind is Parameter.VAR_POSITIONAL else ""
    hint = "" if each.annotation is each.empty else f": {type_text(each.annotation)}"
    if each.default is each.empty:
        return f"{stars}{each.name}{hint}"
    return f"{each.name}{hint} = {default_text(each.default)}"


def type_text(hint: Any) -> str:
    """Return a type as source code, which is the same in all versions of Python."""
    if isinstance(hint, str):
        return hint
    if get_origin(hint) in {Union, UnionType}:
        return " | ".join(dict.fromkeys(type_text(member) for member in get_args(hint)))
    if get_origin(hint) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(hint)))}]"
    if hint is type(None):
        return "None"
    if get_args(hint):
        return f"{get_origin(hint).__name__}[{', '.join(map(type_text, get_args(hint)))}]"
    return getattr(hint, "__name__", str(hint))


def default_text(value: Any) -> str:
    """Return a default as source code; a function or class has its name."""
    if value is ...:
        return "..."
    return value.__name__ if callable(value) else repr(value)


def _text(doc: str | None, documented: Any = None) -> str:
    """Return a docstring in Markdown: parameters as lists with their types and defaults, examples and math as code."""
    if not doc:
        return ""
    parts = _SECTION.split(cleandoc(doc))
    texts = [_prose(parts[0])]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title in _LISTS:
            texts.append(f"**{title}**\n\n" + "\n".join(_items(body, documented if title == "Parameters" else None)))
        elif title == "Examples":
            texts.append(f"```pycon\n{body.strip()}\n```")
        else:
            texts.append(f"**{title}**\n\n{_prose(body)}")
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _items(body: str, documented: Any) -> Iterator[str]:
    """Yield a Markdown line for each entry of a numpydoc section, such as Parameters.

    Types and defaults of parameters come from the signature of `documented`, if there is one.
    """
    shown = signature(documented).parameters if callable(documented) else {}
    for item in re.split(r"\n(?=\S)", body.strip()):
        head, _, rest = item.partition("\n")
        names, _, type_name = head.partition(" : ")
        if not type_name and names in shown and shown[names].annotation is not Parameter.empty:
            type_name = type_text(shown[names].annotation)
        default = shown[names].default if names in shown else Parameter.empty
        of_type = (
            f" ({type_name}{'' if default is Parameter.empty else f', default {default_text(default)}'})"
            if type_name
            else ""
        )
        named = ", ".join(f"`{name}`" for name in names.replace("\\", "").split(", ") if name)
        text = " ".join(_prose(cleandoc(rest)).split()) if ".. math" not in rest else _prose(cleandoc(rest))
        yield f"- {named}{of_type}" + (f": {text}" if text else "")


def _prose(text: str) -> str:
    """Return reStructuredText as Markdown: math, roles such as :func: and double backticks become code."""
    text = _MATH.sub(lambda match: f"```text\n{cleandoc(match[1]).strip()}\n```\n", text)
    return re.sub(r"(?<!`)``(?!`)", "`", re.sub(r":\w+:`", "`", text))


def main() -> None:
    """Write the pages."""
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
