"""Make clients of a running service's contract by the commands of two pages, and run the pages' programs with them."""

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
    """Compile the TypeScript page with the types of its command, run it, and compare its draws; return a summary."""
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")  # of the page's `npm pkg set`
    program = "\n".join([*_programs(of_functions=False), SAVE_TYPESCRIPT])
    (folder / "journey.ts").write_text(program.replace("docs/examples", str(ROOT / "docs" / "examples")), "utf-8")
    _run_program(folder, url, _commands(TYPESCRIPT_PAGE, ("npx ", "node "), url)[:3])
    return "The TypeScript page compiles in strict mode, and its draws have the bits of the service."


def run_functions(folder: Path, url: str) -> str:
    """Compile the page's second program with the functions of its command, run it, and compare its draw."""
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    (config,) = blocks(TYPESCRIPT_PAGE, "js")
    (folder / "openapi-ts.config.mjs").write_text(config.replace(PAGE_URL, url), "utf-8")
    (program,) = _programs(of_functions=True)
    (folder / "functions.ts").write_text(program, "utf-8")
    _run_program(folder, url, _commands(TYPESCRIPT_PAGE, ("npx ", "node "), url)[3:])
    return "Functions for TypeScript by hey-api compile in strict mode, and their draw has the bits of the service."


def _programs(*, of_functions: bool) -> list[str]:
    """Return the blocks of TypeScript, or the one that calls generated functions."""
    return [block for block in blocks(TYPESCRIPT_PAGE, "ts") if ("sdk.gen" in block) == of_functions]


def _run_program(folder: Path, url: str, commands: list[list[str]]) -> None:
    """Run the commands of a page with the locked packages, and compare the draws that its program saves."""
    (folder / "node_modules").symlink_to(MODULES)
    output = ""
    for name, *arguments in commands:
        command = [name, *arguments] if name == "node" else [str(MODULES / ".bin" / arguments[0]), *arguments[1:]]
        output = run(command, folder, GLLE_URL=url)
    _compare(folder, url, output)


def run_python(folder: Path, url: str) -> str:
    """Import every module of the Python client that the page's command makes, and run the page; return a summary."""
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
    """Return the output of a program; raise RuntimeError with it unless the program exits with 0."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]} failed:\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
    return done.stdout + done.stderr


def _commands(page: Path, starts: tuple[str, ...], url: str) -> list[list[str]]:
    """Return the words of a page's commands that begin with one of these, for the service at `url`."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith(starts)]
    return [shlex.split(line.replace(PAGE_URL, url)) for line in lines]


def _compare(folder: Path, url: str, output: str) -> None:
    """Raise RuntimeError unless a page has saved the draws of the posterior that it names."""
    match = re.search(r"\bpost_[0-9a-f]{32}\b", output)
    if match is None:
        raise RuntimeError(f"The page names no posterior:\n{output}")
    with Client(url, progress=False) as client:
        posterior = client.posterior(match[0])
        expected = {"draw.npy": posterior.draw(7), "draws.npy": posterior.draws(8, scales=[0.1, 1, 10])}
    for file in folder.glob("*.npy"):
        if not np.array_equal(np.load(file), expected[file.name]):
            raise RuntimeError(f"{file.name} of the page is not what the service draws.")
