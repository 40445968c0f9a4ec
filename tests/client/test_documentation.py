"""docs/reference/client.md lists all methods, arguments, errors and commands of the client."""

from __future__ import annotations

import argparse
import pydoc
import re
from typing import Any

import pytest

import glle
import glle.cli
import glle.client
import glle_engine
from glle import Client, Dataset, GlleServiceError, Job, Posterior
from glle.cli import connection
from tests.system.conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "client.md").read_text(encoding="utf-8")
PUBLIC = "GLLE Embedding GlleError audit compare datasets embed fit frame load plot to_xarray widget"
SECTIONS = dict(re.findall(r"^## (\w+).*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("kind", [Client, Dataset, Posterior, Job])
def test_page_has_every_method(kind: type) -> None:
    """The page lists each public method with its arguments, except for options that the API's pages list."""
    public = [name for name in dir(kind) if not name.startswith("_") and name not in {"metadata", "index"}]
    for name in public:
        member = getattr(kind, name)
        if isinstance(member, property):
            assert f"`{name}`" in SECTIONS[kind.__name__], name
            continue
        assert f"`{name}(" in SECTIONS[kind.__name__], name
        arguments = set(member.__code__.co_varnames[: member.__code__.co_argcount + member.__code__.co_kwonlyargcount])
        (shown,) = re.findall(rf"`{name}\((.*?)\)`", SECTIONS[kind.__name__])
        assert {word for word in arguments - {"self", "cursor"} if not re.search(rf"\b{word}\b", shown)} == set(), name


def test_page_has_every_error_with_its_statuses() -> None:
    """The page lists each exception with the statuses of its class."""
    kinds: list[Any] = [getattr(glle, name) for name in glle.client.__all__ if name.endswith("Error")]
    for kind in kinds:
        (line,) = [line for line in PAGE.splitlines() if re.search(rf"^\|.*`{kind.__name__}`", line)]
        if kind is not GlleServiceError:
            assert {int(status) for status in re.findall(r"\b\d{3}\b", line)} == kind.statuses - {0}


def test_page_has_every_command_and_exit_code() -> None:
    """The page lists each command, its actions and the exit codes."""
    groups = argparse.ArgumentParser().add_subparsers()
    glle.cli.add(groups)
    for name, group in groups.choices.items():
        assert f"`glle {name}" in SECTIONS["Commands"]
        actions = [part for part in group._actions if isinstance(part, argparse._SubParsersAction)]
        for action in [word for part in actions for word in part.choices]:
            assert re.search(rf"`(glle {name} )?{action}\b", SECTIONS["Commands"]), (name, action)
    codes = {connection.REFUSED, connection.MISUSED, connection.UNREACHABLE, connection.LATE, connection.INTERRUPTED, 0}
    codes |= {connection.UNREAD}
    (listed,) = re.findall(r"Exit codes: (.*)", PAGE)
    assert {int(code) for code in re.findall(r"\d+", listed)} == codes


def test_help_of_the_package_shows_an_example_and_the_public_names() -> None:
    """`help(glle)` has the classes, though they are imported at their first use."""
    text = pydoc.plain(pydoc.render_doc(glle))
    assert "client.fit(X, labels=y" in text
    assert "class Client(" in text
    assert "fit(X:" in text
    assert set(dir(glle)) == set(glle.__all__) == {*PUBLIC.split(), *glle.client.__all__}


def test_names_of_the_client_are_importable_from_the_package() -> None:
    """`glle` offers the client's classes and errors; an unknown name raises AttributeError."""
    assert glle.AsyncClient is glle.client.AsyncClient
    assert glle.NotFoundError is glle.client.NotFoundError
    assert glle.GlleError is glle_engine.GlleError
    assert glle.__version__ == glle_engine.__version__
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        glle.nonsense  # type: ignore[attr-defined]  # noqa: B018
