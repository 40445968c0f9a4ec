"""Run the quickstart with `glle[client]` alone: `python -m qa.inputs.clients.fresh`.

The wheel of this tree is installed into a new environment outside it, which must not have the server's packages. The
commands of the page run with nothing else; its Python blocks also need matplotlib and pandas. A service runs from the
tree. Without a package index nothing is checked: the program says so and exits with 0, or with 1 if FRESH=required.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from qa.inputs.clients.npm import UnavailableError
from tests.system.conftest import ONE_EACH, ROOT, running

PAGE = ROOT / "docs" / "tutorials" / "quickstart.md"
EXAMPLE = Path("docs", "examples", "sheet.csv")
PLOTTING = ("matplotlib", "pandas")  # of the Python blocks
SERVER = ("fastapi", "redis", "rq", "uvicorn", "pydantic", "service", "worker")
SECONDS = 600
# Errors of pip that say that the index, or the way to it, is down.
NETWORK = re.compile(r"NewConnectionError|ConnectTimeout|ReadTimeout|Max retries|name resolution|ProxyError|SSLError")
CHECKS = """
assert draws.shape == (100, 300, 2), draws.shape
assert placed.embedding.shape == (5, 2), placed.embedding.shape
assert list(table.columns) == ["y1", "y2"], table.columns
"""


def main() -> int:
    """Install the client and run the page; return 0, or 1 for a failure."""
    is_required = os.environ.get("FRESH") == "required"
    with tempfile.TemporaryDirectory(prefix="glle-fresh-") as folder:
        try:
            python = installed(Path(folder))
            with running(Path(folder), **ONE_EACH) as up:
                run_page(python, Path(folder), up.url)
        except UnavailableError as error:
            sys.stderr.write(f"SKIPPED: {error} The client alone is unchecked.\n")
            return int(is_required)
    sys.stdout.write("The quickstart runs with glle[client] alone.\n")
    return 0


def installed(folder: Path) -> Path:
    """Return the interpreter of a new environment with the client's wheel."""
    program = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    wheel = folder / run(Path(sys.executable), "-c", program, str(folder), cwd=ROOT).split()[-1]
    run(Path(sys.executable), "-m", "venv", str(folder / "venv"), cwd=folder)
    python = folder / "venv" / "bin" / "python"
    install(python, f"glle[client] @ {wheel.as_uri()}", cwd=folder)
    return python


def install(python: Path, *requirements: str, cwd: Path) -> None:
    """Install packages by pip; raise `UnavailableError` without an index."""
    try:
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements, cwd=cwd)
    except RuntimeError as error:
        if match := NETWORK.search(str(error)):
            raise UnavailableError(f"pip cannot reach its index: {match[0]}.") from error
        raise


def run_page(python: Path, folder: Path, url: str) -> None:
    """Run the page's commands with the client alone, then its Python blocks with the plotting packages."""
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
    install(python, *PLOTTING, cwd=folder)
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


if __name__ == "__main__":
    sys.exit(main())
