"""Check the JavaScript of the explorer and of /docs for long lines, and the explorer's types by TypeScript.

`python -m qa.inputs.clients.page` runs in `make lint`. The types of the service's answers come from the contract.
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
    """Check line lengths and types; return 0, or 1 for a failure."""
    if long := [place for folder in SCRIPTS for place in long_lines(folder)]:
        sys.stderr.write("".join(f"{place}: longer than {LINE} characters\n" for place in long))
        return 1
    status = install_or_skip(FOLDER, "The types of the page's scripts are unchecked.")
    if status is not None:
        return status
    write_types()
    return int(run("tsc", "--project", str(FOLDER / "page.tsconfig.json")) != 0)


def long_lines(folder: Path) -> list[str]:
    """Return "file:line" for each line of more than 120 characters in the scripts of a folder."""
    return [
        f"{path}:{number}"
        for path in sorted(folder.rglob("*.js"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LINE
    ]


def write_types() -> None:
    """Generate TypeScript types from the contract, unless they are there for this contract already."""
    head = f"// {hashlib.sha256(CONTRACT.read_bytes()).hexdigest()}\n"
    if TYPES.exists() and TYPES.read_text(encoding="utf-8").startswith(head):
        return
    if run("openapi-typescript", str(CONTRACT), "--default-non-nullable=false", "--output", str(TYPES)):
        raise RuntimeError("openapi-typescript failed.")
    TYPES.write_text(head + TYPES.read_text(encoding="utf-8"), encoding="utf-8")


def run(program: str, *arguments: str) -> int:
    """Run a program that npm has installed; return its exit status, and print its output if it fails."""
    command = [str(FOLDER / "node_modules" / ".bin" / program), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
