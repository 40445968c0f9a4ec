"""The names of `import glle_engine`, each loaded from its module at its first use."""

import subprocess
import sys

import glle_engine


def test_every_public_name_is_loaded_from_its_module() -> None:
    """In a process that has loaded no module of the engine yet."""
    names = ", ".join(glle_engine.__all__)
    subprocess.run([sys.executable, "-c", f"from glle_engine import {names}"], check=True)
