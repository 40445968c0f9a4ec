"""The quickstart in an environment with `glle[client]` alone: its commands, then its Python blocks with plots."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.system.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "tutorials" / "quickstart.md"
EXAMPLE = Path("docs", "examples", "sheet.csv")
PLOTTING = ("matplotlib", "pandas")  # of the Python blocks
SERVER = ("fastapi", "redis", "rq", "uvicorn", "pydantic", "service", "worker")
SECONDS = 600
CHECKS = """
assert draws.shape == (100, 300, 2), draws.shape
assert placed.embedding.shape == (5, 2), placed.embedding.shape
assert list(table.columns) == ["y1", "y2"], table.columns
"""


def run_page(python: Path, folder: Path, url: str, install: Callable[..., object]) -> None:
    """Run the page's commands with the client alone, then its Python blocks, which need the plotting packages."""
    require_client_only(python, folder)
    here = folder / "user"
    (here / EXAMPLE.parent).mkdir(parents=True)
    shutil.copy(ROOT / EXAMPLE, here / EXAMPLE)
    posterior = "post_..."
    for line in commands():
        words = shlex.split(line.replace("post_...", posterior), comments=True)
        printed = run(python.with_name(words[0]), *words[1:], cwd=here, GLLE_URL=url)
        posterior = printed.split()[0] if words[1] == "fit" else posterior
    for name in ("draws.npy", "spread.csv"):
        if not (here / name).is_file():
            raise RuntimeError(f"The commands of {PAGE.name} wrote no {name}.")
    install(python, *PLOTTING)
    program = here / "quickstart.py"
    program.write_text("\n".join([*blocks("python"), CHECKS]), encoding="utf-8")
    run(python, "-I", str(program), cwd=here, GLLE_URL=url, MPLBACKEND="Agg")
    require_client_only(python, folder)


def commands() -> list[str]:
    """Return the lines of the page that are commands of `glle`."""
    return [line for block in blocks("sh") for line in block.splitlines() if line.startswith("glle ")]


def blocks(language: str) -> list[str]:
    """Return the code of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def require_client_only(python: Path, folder: Path) -> None:
    """Raise RuntimeError if an interpreter finds a package of the server, or no client."""
    program = f"from importlib.util import find_spec; print(*[n for n in {('glle', *SERVER)!r} if find_spec(n)])"
    if (found := run(python, "-I", "-c", program, cwd=folder).split()) != ["glle"]:
        raise RuntimeError(f"The environment of the client has {', '.join(found) or 'nothing'}; glle alone is right.")


def run(python: Path, *words: str, cwd: Path, **environment: str) -> str:
    """Return the output of a program; raise RuntimeError with its errors unless it exits with 0."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "GLLE_KEY", "GLLE_URL"}}
    command = [str(python), *words]
    variables = {**kept, **environment}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{python.name} {' '.join(words)[:200]} failed:\n{done.stdout[-2000:]}{done.stderr[-6000:]}")
    return done.stdout
