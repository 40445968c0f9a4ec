"""The compiler of the engine."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_disabled_compiler_is_named_with_the_remedy() -> None:
    """The kernels cannot be interpreted; the import says so, and not the first kernel that fails."""
    done = subprocess.run(
        [sys.executable, "-c", "from glle_engine import fit"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: NUMBA_DISABLE_JIT is set, and the engine runs only compiled. Unset NUMBA_DISABLE_JIT."
    )
