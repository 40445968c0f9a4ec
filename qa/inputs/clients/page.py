"""Check the scripts of the page and of /docs: the length of their lines; of the page also their types by TypeScript.

`python -m qa.inputs.clients.page` runs in `make lint`. The types of the service's records come from the contract.
Without npm the types are not checked, as `install_or_skip` says.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from qa.inputs.clients.npm import install_or_skip

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
SCRIPTS = (ROOT / "service" / "explorer" / "js", ROOT / "service" / "schemas")
LINE = 120  # characters
CONTRACT = ROOT / "openapi" / "openapi.json"
TYPES = FOLDER / "node_modules" / ".contract.d.ts"


def main() -> int:
    """Check the scripts; return 0, or 1 for a failure."""
    if long := [place for folder in SCRIPTS for place in long_lines(folder)]:
        sys.stderr.write("".join(f"{place}: longer than {LINE} characters\n" for place in long))
        return 1
    status = install_or_skip(FOLDER, "The types of the page's scripts are unchecked.")
    if status is not None:
        return status
    write_types()
    return int(run("tsc", "--project", str(FOLDER / "page.tsconfig.json")) != 0)


def long_lines(folder: Path) -> list[str]:
    """Return the places of the lines that are too long, as file:line."""
    return [
        f"{path}:{number}"
        for path in sorted(folder.rglob("*.js"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LINE
    ]


def write_types() -> None:
    """Write the types of the contract, unless the file has them already."""
    head = f"// {hashlib.sha256(CONTRACT.read_bytes()).hexdigest()}\n"
    if TYPES.exists() and TYPES.read_text(encoding="utf-8").startswith(head):
        return
    if run("openapi-typescript", str(CONTRACT), "--default-non-nullable=false", "--output", str(TYPES)):
        raise RuntimeError("openapi-typescript failed.")
    TYPES.write_text(head + TYPES.read_text(encoding="utf-8"), encoding="utf-8")


def run(program: str, *arguments: str) -> int:
    """Run an installed program; return its exit status, and show its output if it fails."""
    command = [str(FOLDER / "node_modules" / ".bin" / program), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
