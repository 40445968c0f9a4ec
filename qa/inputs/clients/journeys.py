"""Generate clients by the commands of two pages of the documentation, and run the programs of these pages.

Each program saves draws of a posterior, which have to be what the service draws.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

from glle import Client
from tests.docs.pages import ROOT, blocks

PYTHON_PAGE = ROOT / "docs" / "reference" / "http-api.md"
TYPESCRIPT_PAGE = ROOT / "docs" / "tutorials" / "typescript.md"
PAGE_URL = "http://127.0.0.1:8000"
PACKAGE = "glle_client"
MODULES = Path(__file__).with_name("node_modules")
# Media types of these that openapi-python-client leaves out: formats of uploads, and the zip file of an export.
INCOMPLETE = {"POST /v1/datasets", "POST /v1/datasets/preview", "GET /v1/posteriors/{id}/export"}
SECONDS = 300
IMPORT_ALL = f"""
import importlib, pkgutil, {PACKAGE}
names = [module.name for module in pkgutil.walk_packages({PACKAGE}.__path__, "{PACKAGE}.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
SAVE_PYTHON = """
print(posterior.id)
np.save("draw.npy", draw)
np.testing.assert_array_equal(typed.data, draw)
"""
SAVE_TYPESCRIPT = """
await writeFile("draw.npy", new Uint8Array(bytes));
if (draw.values.length !== 800 || parseNpy(all).values[2 * 7 * 400] === undefined) throw new Error("a part is missing");
"""


def run_types(folder: Path, url: str) -> str:
    """Generate types for TypeScript, compile and run the page's first program, and compare its draws.

    Returns a sentence for the output.
    """
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")  # of the page's `npm pkg set`
    program = "\n".join([*_programs(of_functions=False), SAVE_TYPESCRIPT])
    (folder / "journey.ts").write_text(program.replace("docs/examples", str(ROOT / "docs" / "examples")), "utf-8")
    _run_program(folder, url, _commands(TYPESCRIPT_PAGE, ("npx ", "node "), url)[:3])
    return "The TypeScript page compiles in strict mode, and its draws have the bits of the service."


def run_functions(folder: Path, url: str) -> str:
    """Generate functions for TypeScript, compile and run the page's second program, and compare its draw.

    Returns a sentence for the output.
    """
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    (config,) = blocks(TYPESCRIPT_PAGE, "js")
    (folder / "openapi-ts.config.mjs").write_text(config.replace(PAGE_URL, url), "utf-8")
    (program,) = _programs(of_functions=True)
    (folder / "functions.ts").write_text(program, "utf-8")
    _run_program(folder, url, _commands(TYPESCRIPT_PAGE, ("npx ", "node "), url)[3:])
    return "Functions for TypeScript by hey-api compile in strict mode, and their draw has the bits of the service."


def _programs(*, of_functions: bool) -> list[str]:
    """Return the page's TypeScript blocks that call generated functions, or all others."""
    return [block for block in blocks(TYPESCRIPT_PAGE, "ts") if ("sdk.gen" in block) == of_functions]


def _run_program(folder: Path, url: str, commands: list[list[str]]) -> None:
    """Run commands of the TypeScript page with the locked packages, and compare the draws that they save."""
    (folder / "node_modules").symlink_to(MODULES)
    output = ""
    for name, *arguments in commands:
        command = [name, *arguments] if name == "node" else [str(MODULES / ".bin" / arguments[0]), *arguments[1:]]
        output = run(command, folder, GLLE_URL=url)
    _compare(folder, url, output)


def run_python(folder: Path, url: str) -> str:
    """Generate a Python client, import all its modules, run the page's program, and compare its draws.

    Returns a sentence for the output. Raises RuntimeError if the generator leaves parts of the contract out.
    """
    (config,) = blocks(PYTHON_PAGE, "yaml")
    (folder / "glle.yaml").write_text(config, "utf-8")
    (line,) = _commands(PYTHON_PAGE, ("openapi-python-client ",), url)
    report = run([str(Path(sys.executable).with_name(line[0])), *line[1:]], folder)
    if unexpected := set(re.findall(r"WARNING parsing (\S+ \S+) within", report)) - INCOMPLETE:
        raise RuntimeError(f"The generator leaves parts of {', '.join(sorted(unexpected))} out:\n{report[:5000]}")
    made = {"PYTHONPATH": str(folder / "glle-client")}
    count = run([sys.executable, "-c", IMPORT_ALL], folder, **made).strip()
    (program,) = [block for block in blocks(PYTHON_PAGE, "python") if PACKAGE in block]
    output = run([sys.executable, "-c", program + SAVE_PYTHON], folder, GLLE_URL=url, **made)
    _compare(folder, url, output)
    return f"All {count} modules of the Python client load, and its draws have the bits of the service."


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a program in a folder, and return its output; raise RuntimeError with the output if the program fails."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]} failed:\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
    return done.stdout + done.stderr


def _commands(page: Path, starts: tuple[str, ...], url: str) -> list[list[str]]:
    """Return the words of a page's shell commands that begin with one of `starts`, with `url` as the service."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith(starts)]
    return [shlex.split(line.replace(PAGE_URL, url)) for line in lines]


def _compare(folder: Path, url: str, output: str) -> None:
    """Raise RuntimeError unless the npy files in `folder` are draws of the posterior whose id is in `output`."""
    match = re.search(r"\bpost_[0-9a-f]{32}\b", output)
    if match is None:
        raise RuntimeError(f"The page names no posterior:\n{output}")
    with Client(url, progress=False) as client:
        posterior = client.posterior(match[0])
        expected = {"draw.npy": posterior.draw(7), "draws.npy": posterior.draws(8, scales=[0.1, 1, 10])}
    for file in folder.glob("*.npy"):
        if not np.array_equal(np.load(file), expected[file.name]):
            raise RuntimeError(f"{file.name} of the page is not what the service draws.")
