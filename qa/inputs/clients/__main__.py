"""`python -m qa.inputs.clients`: generate clients by the commands of the documentation, and run its programs with them.

The generators make a Python client, TypeScript types and TypeScript functions. Without npm only Python is checked, as
`install_or_skip` says.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from qa.inputs.clients.journeys import run_functions, run_python, run_types
from qa.inputs.clients.npm import install_or_skip
from tests.system.conftest import ONE_EACH, running

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent


def main() -> int:
    """Check the clients of all generators that can run; return 0, or 1 for a failure."""
    status = install_or_skip(FOLDER, "The TypeScript page is unchecked.")
    if status is None:
        return check(run_python, run_types, run_functions)
    return status or check(run_python)


def check(*pages: Callable[[Path, str], str]) -> int:
    """Start a service, and call each function with a folder and the URL; return 1 at the first RuntimeError, else 0."""
    with tempfile.TemporaryDirectory(prefix="glle-clients-") as name, running(Path(name), **ONE_EACH) as up:
        for page in pages:
            folder = Path(name, page.__name__)
            folder.mkdir()
            try:
                sys.stdout.write(f"{page(folder, up.url)}\n")
            except RuntimeError as error:
                sys.stderr.write(f"{error}\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
