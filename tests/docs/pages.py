"""Code blocks of the documentation's pages, and functions that run them."""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced code blocks of a page."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def run(code: Iterable[str], **names: Any) -> dict[str, Any]:
    """Run blocks of Python one after the other in one namespace, and return its names."""
    for block in code:
        exec(block, names)  # noqa: S102 # the project's own page
    return names


def bash(script: str, folder: Path, *flags: str, **environment: str) -> str:
    """Run a script in a folder, assert that it succeeds, and return its output."""
    done = subprocess.run(
        ["bash", *flags, "-c", script],  # noqa: S607 # the reader's own shell
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


STRICT = ("-euo", "pipefail")
