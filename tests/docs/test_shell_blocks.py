"""Each shell block of the pages runs in a test, or names the reason why not.

The line before a block ends with one of these comments:

    <!-- run -->                  `test_the_block_runs` runs it against a service
    <!-- run by FILE::TEST -->    another test does
    <!-- not run: REASON -->
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from glle import Client
from tests.docs.pages import PAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.conftest import Up

SHELLS = {"sh", "bash", "console", "shell"}
PROGRAMS = (
    r"make|glle|curl|docker|docker-compose|git|kubectl|kustomize|mkdocs|openssl|pip|python3?|"
    r"\.venv/bin/\w+|bash|export|cp|printf|inside|logs|metrics"  # the last ones of the runbook
)
_COMMAND = re.compile(rf"^ *(?:\w+=\S* +)*(?:\w+=\$\()?(?:{PROGRAMS})\s+(?!=)\S", re.MULTILINE)
_MARK = re.compile(r"<!-- (run|run by (\S+)::(\w+)|not run: .{9,}) -->$")
_TARGET = re.compile(r"(?:^ *|`)make ((?:-C qa )?)([a-z][a-z -]*?)(?=  |`|$| [A-Z#])", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A shell block: its page, line and text, and the line of text before it."""

    page: Path
    line: int
    text: str
    before: str

    def __str__(self) -> str:
        """Return the place of the block."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def shell_blocks(page: Path) -> Iterator[Block]:
    """Yield fenced blocks of a shell, and other blocks without a language that contain a command."""
    before, block, language = "", list[str](), None
    for number, line in enumerate([*page.read_text(encoding="utf-8").splitlines(), "end"], 1):
        fence = re.fullmatch(r"```(\w*).*", line)
        if language is None and fence is None and line.startswith("    ") and (block or not before.startswith("- ")):
            block.append(line[4:])
            continue
        if language is not None and fence is None:
            block.append(line)
            continue
        if block and not line and language is None:
            block.append(line)  # within an indented block, or after it
            continue
        text = "\n".join(block).rstrip()
        if language in SHELLS or (language in {None, ""} and _COMMAND.search(text)):
            yield Block(page, number - len(block), text, before)
        if block or language is not None:
            before, block = "(a block)", []
        language = fence[1] if fence is not None and language is None else None
        before = line if line and fence is None else before


BLOCKS = [block for page in PAGES if page.name != "CHANGELOG.md" for block in shell_blocks(page)]
RUN = [block for block in BLOCKS if block.before.endswith("<!-- run -->")]


def test_blocks_are_found() -> None:
    """The patterns still match the pages."""
    assert len(BLOCKS) > 45
    assert len(RUN) >= 8
    assert sum("make" in block.text for block in BLOCKS) > 5


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_each_block_names_its_test_or_the_reason(block: Block) -> None:
    """The comment before the block has one of the three forms; a named test exists."""
    mark = _MARK.search(block.before)
    assert mark, f"{block}: the line before the block needs a comment, see the head of {Path(__file__).name}"
    if mark[2]:
        assert re.search(rf"^def {mark[3]}\(", (ROOT / mark[2]).read_text(encoding="utf-8"), re.MULTILINE)


def test_each_comment_belongs_to_a_block() -> None:
    """No comment is left of a block that was removed."""
    for page in PAGES:
        marks = re.findall(r"(?<!`)<!-- (?:run|not run)\b", page.read_text(encoding="utf-8"))
        assert len(marks) == len([block for block in BLOCKS if block.page == page]), page.name


@pytest.mark.parametrize("page", [page for page in PAGES if "make " in page.read_text(encoding="utf-8")], ids=str)
def test_targets_of_make_exist(page: Path) -> None:
    """Each `make TARGET` and `make -C qa TARGET` of a page is a target of that Makefile."""
    targets = {
        folder: set(re.findall(r"^([a-z][\w-]*):", (ROOT / folder / "Makefile").read_text(), re.MULTILINE))
        for folder in (".", "qa")
    }
    for where, names in _TARGET.findall(page.read_text(encoding="utf-8")):
        assert set(names.split()) <= targets["qa" if where else "."], names


@pytest.fixture(scope="module")
def folder(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the blocks read, and the ids of a data set and a posterior."""
    folder = tmp_path_factory.mktemp("blocks")
    rng = np.random.default_rng(3)
    points = rng.normal(size=(120, 3))
    rows = [[f"{value:.4f}" for value in point] for point in points]
    for name, column, values in (
        ("sheet", "species", ["a", "b"] * 60),
        ("flowers", "species", ["a", "b"] * 60),
        ("customers", "customer", [f"C-{index:03d}" for index in range(120)]),
    ):
        head = ["x", "y", "z", column, *(["note"] if name == "flowers" else [])]
        lines = [[*row, value, *head[4:]] for row, value in zip(rows, values, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(",".join(line) for line in [head, *lines]) + "\n")
    (folder / ".venv").symlink_to(sys.prefix)
    with Client(up.url) as client:
        dataset = client.dataset(folder / "customers.csv", id=["customer"])
        posterior = client.fit(dataset, n_neighbors=10)
        posterior.summary()
        (folder / "ids").write_text(f"{dataset.id} {posterior.id}")
    return folder


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("block", RUN, ids=str)
def test_the_block_runs(block: Block, up: Up, folder: Path) -> None:
    """The block ends with exit code 0, with the address of the service and ids in place of the page's."""
    dataset, posterior = (folder / "ids").read_text().split()
    script = block.text.replace("ds_...", dataset).replace("post_...", posterior).replace("curl -s", "curl --fail -s")
    for address in ("http://127.0.0.1:8000", "https://glle.example.org"):
        script = script.replace(address, up.url)
    servers = {name: up.redis_url(name) for name in ("GLLE_REDIS_URL", "GLLE_CACHE_URL")} if "doctor" in script else {}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],  # noqa: S607 # the reader's own shell
        cwd=folder,
        env={**os.environ, **servers, "URL": up.url, "GLLE_URL": up.url, "PYTHONPATH": str(ROOT)}
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
