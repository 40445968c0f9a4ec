"""Every `glle` command of the pages is one that the program accepts."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from glle import cli
from service.cli.main import add_commands
from tests.docs.test_pages import PAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not those of the changelog, which names groups of commands.
_COMMAND = re.compile(r"(?:^(?: {4}|\$ )?|`|-- |api |[(|] ?|[A-Z]=\S+ )glle ([-a-z][^`\n]*)", re.MULTILINE)


def written() -> Iterator[tuple[str, str]]:
    """Yield the page and the words after `glle` of every command in code."""
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = re.findall(r"^```(?:sh|console|bash)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        blocks += re.findall(r"(?:^ {4,}\S.*\n)+", text, re.MULTILINE)
        blocks += re.findall(r"(`glle [^`]+`)", text)
        for block in blocks:
            for words in _COMMAND.findall(block):
                words_alone = re.split(r"\s#|\s[|&>;]|\)$", words)[0].strip()
                yield str(page.relative_to(ROOT)), words_alone.replace(" FILE", " file.npy")


COMMANDS = sorted(set(written()))


def test_commands_are_found() -> None:
    """The pattern still matches the pages."""
    assert len(COMMANDS) > 50


@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_the_program_accepts_the_command(page: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's words, options and values are those of its parser; it is not run. A bare name is looked up."""
    if re.fullmatch("[a-z]+", words):
        words += " --help"
    parse = argparse.ArgumentParser.parse_args

    def parsed(self: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
        parse(self, arguments)
        return argparse.Namespace(run=lambda _: 0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    with contextlib.suppress(SystemExit) if re.search("--(help|version)$", words) else contextlib.nullcontext():
        assert cli.main(shlex.split(words), [add_commands]) == 0
