"""Every `glle` command of the pages is one that the program accepts."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from glle import cli
from service.cli.main import add_commands
from tests.docs.pages import PAGES, ROOT

if TYPE_CHECKING:
    import argparse
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


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Return the parser of the client's and the server's commands."""
    return cli.command_parser([add_commands])[0]


@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_the_program_accepts_the_command(page: str, words: str, parser: argparse.ArgumentParser) -> None:
    """The command's words, options and values are those of its parser; it is not run. A bare name is looked up."""
    if re.fullmatch("[a-z]+", words):
        words += " --help"
    if not re.search("--(help|version)$", words):
        assert parser.parse_args(shlex.split(words)).run
        return
    with pytest.raises(SystemExit) as end:
        parser.parse_args(shlex.split(words))
    assert end.value.code == 0
