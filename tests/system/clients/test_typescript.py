"""The TypeScript client: its own tests, without a service and with the running one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from glle import Client, Dataset, Job, Posterior
from glle.resources.methods import Embedding
from openapi import client_types, typescript_types
from tests.system.clients.typescript import CLIENT, TypeScript, typescript

if TYPE_CHECKING:
    from tests.system.conftest import Up

RESOURCES = ("Dataset", "Posterior", "Embedding")
FILES = {"Client": "client.ts", **{kind: f"resources/{kind.lower()}s.ts" for kind in RESOURCES}}
FILES["Job"] = FILES["Posterior"]
PYTHON_ONLY = {"close", "frame", "of_json"}  # of connections, of pandas and of results


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> TypeScript:
    """Return the installed package."""
    return typescript(tmp_path_factory.mktemp("typescript"))


def test_types_are_those_of_the_contract() -> None:
    """`make setup` writes them."""
    contract = json.loads(client_types.CONTRACT.read_text(encoding="utf-8"))
    text = typescript_types.types_text(contract)
    assert typescript_types.TYPES.read_text(encoding="utf-8") == text, "run `make setup`"


@pytest.mark.parametrize("kind", [Client, Dataset, Posterior, Job, Embedding])
def test_methods_are_those_of_the_python_client(kind: type) -> None:
    """Each with its name in camel case."""
    file = (CLIENT / "src" / FILES[kind.__name__]).read_text(encoding="utf-8")
    parts = re.findall(rf"^export (?:class|interface) {kind.__name__}\w* .*?^}}$", file, re.MULTILINE | re.DOTALL)
    text = "\n".join(parts)
    defined = set(re.findall(r"^  (?:get |async |readonly )*\*?(\w+)[(:]", text, re.MULTILINE))
    names = {name for name in dir(kind) if not name.startswith("_")} - PYTHON_ONLY - {"index"}
    expected = {re.sub(r"_(\w)", lambda match: match[1].upper(), name) for name in names}
    assert expected <= defined
    page = (CLIENT.parents[1] / "docs" / "tutorials" / "typescript.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{kind.__name__}` \|(.*)$", page, re.MULTILINE)
    assert expected <= set(re.findall(r"`(\w+)`", row))


def test_version_is_that_of_the_python_client() -> None:
    """Both are published together, and the package needs nothing to run."""
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((CLIENT / "package-lock.json").read_text(encoding="utf-8"))
    text = (CLIENT.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{package["version"]}"' in text
    assert "dependencies" not in package
    assert lock["packages"][""]["devDependencies"] == package["devDependencies"]
    assert all("resolved" not in entry for entry in lock["packages"].values())


@pytest.mark.parametrize("name", ["npy", "events", "client"])
def test_package_without_a_service(package: TypeScript, name: str) -> None:
    """Formats, events and the rules about requests."""
    output = package.run_tests(name).stdout
    assert re.search(r"^\S pass [1-9]", output, re.MULTILINE), output


@pytest.mark.slow
def test_package_with_a_service(package: TypeScript, up: Up) -> None:
    """Every method against the running service."""
    output = package.run_tests("live", GLLE_URL=up.url).stdout
    assert re.search(r"^\S skipped 0$", output, re.MULTILINE), output
