"""Make clients of a running service's contract by the command of a page, and run the page's program with it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np

from glle import Client
from tests.docs.pages import ROOT, blocks

TYPESCRIPT_PAGE = ROOT / "docs" / "tutorials" / "typescript.md"
PAGE_URL = "http://127.0.0.1:8000"
MODULES = Path(__file__).with_name("node_modules")
COMPILE = (
    "tsc --strict --exactOptionalPropertyTypes --noUncheckedIndexedAccess --target es2022 --module nodenext page.mts"
)
SECONDS = 300
SAVE_TYPESCRIPT = """
await writeFile("draw.npy", new Uint8Array(bytes));
if (draw.values.length !== 800 || parseNpy(all).values[2 * 7 * 400] === undefined) throw new Error("a part is missing");
"""


def run_typescript(folder: Path, url: str) -> str:
    """Compile the TypeScript page with the types of its command, run it, and compare its draws; return a summary."""
    (folder / "node_modules").symlink_to(MODULES)
    tools = MODULES / ".bin"
    (line,) = _commands(TYPESCRIPT_PAGE, "npx ", url)
    run([str(tools / line[1]), *line[2:]], folder)
    program = "\n".join([*blocks(TYPESCRIPT_PAGE, "ts"), SAVE_TYPESCRIPT])
    (folder / "page.mts").write_text(program.replace("docs/examples", str(ROOT / "docs" / "examples")), "utf-8")
    command = shlex.split(COMPILE)
    run([str(tools / command[0]), *command[1:]], folder)
    output = run(["node", "page.mjs"], folder, GLLE_URL=url)
    _compare(folder, url, output)
    return "The TypeScript page compiles in strict mode, and its draws are those of the service."


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Return the output of a program; raise RuntimeError with it unless the program exits with 0."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]} failed:\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
    return done.stdout + done.stderr


def _commands(page: Path, start: str, url: str) -> list[list[str]]:
    """Return the words of a page's commands that begin so, for the service at `url`."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith(start)]
    return [shlex.split(line.replace(PAGE_URL, url)) for line in lines]


def _compare(folder: Path, url: str, output: str) -> None:
    """Raise RuntimeError unless the draws that a page saved are those of the posterior that it names."""
    found = re.search(r"\bpost_[0-9a-f]{32}\b", output)
    if found is None:
        raise RuntimeError(f"The page names no posterior:\n{output}")
    with Client(url, progress=False) as client:
        posterior = client.posterior(found[0])
        expected = {"draw.npy": posterior.draw(7), "draws.npy": posterior.draws(8, scales=[0.1, 1, 10])}
    for file in folder.glob("*.npy"):
        if not np.array_equal(np.load(file), expected[file.name]):
            raise RuntimeError(f"{file.name} of the page is not what the service draws.")
