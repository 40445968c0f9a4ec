"""Install packages of npm from a lock file, or say that this is not possible here."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 300
OLDEST_NODE = (20, 19)
MODES = ("optional", "required")  # of the environment variable NPM
# Codes of npm that say that the registry, or the way to it, is down; others are faults of the lock file.
NETWORK = re.compile(
    r"\b(?:E(?:NOTFOUND|AI_AGAIN|CONNREFUSED|CONNRESET|TIMEDOUT|HOSTUNREACH|NETUNREACH|PIPE)|ERR_SOCKET_TIMEOUT|E40[137]|E429|E5\d\d"
    r"|UNABLE_TO_\w+|SELF_SIGNED_\w+|CERT_\w+)\b"
)


class UnavailableError(Exception):
    """Node or npm is missing or too old, or its registry cannot be reached."""


def install_or_skip(folder: Path, unchecked: str) -> int | None:
    """Install the packages of a folder's lock file; return None, or the exit status for a program that has to stop.

    If node, npm or npm's registry is missing, print on stderr what is `unchecked`; the exit status is then 0, or 1 with
    NPM=required in the environment.
    """
    mode = os.environ.get("NPM") or "optional"
    if mode not in MODES:
        sys.stderr.write(f"NPM={mode!r} is unknown. Use one of {', '.join(MODES)}.\n")
        return 1
    try:
        install(folder)
    except UnavailableError as error:
        sys.stderr.write(f"SKIPPED: {error} {unchecked} NPM={mode}.\n")
        return int(mode == "required")
    return None


def install(folder: Path) -> None:
    """Install the packages of a folder's lock file, unless they are installed already.

    Raises `UnavailableError` if node, npm or the registry is missing, and RuntimeError for other errors of npm.
    """
    require_node()
    stamp, digest = folder / "node_modules" / ".lock-sha256", _digest(folder)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"npm ci in {folder} took longer than {SECONDS} s.") from error
    if done.returncode:
        if match := NETWORK.search(done.stderr):
            raise UnavailableError(f"npm cannot reach its registry: {match[0]}.")
        raise RuntimeError(f"npm ci in {folder} failed:\n{done.stderr}")
    stamp.write_text(digest, encoding="utf-8")


def require_node() -> None:
    """Raise `UnavailableError` if node or npm is not installed, or node is too old."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise UnavailableError("node or npm is not installed.")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S607 # the machine's
    match = re.match(r"v(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST_NODE:
        raise UnavailableError(f"node is {version}; {'.'.join(map(str, OLDEST_NODE))} or newer is needed.")


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
