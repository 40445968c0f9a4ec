"""Download the wheels of a lock file for another Python: `python wheelhouse.py LOCK PYTHON_VERSION FOLDER`.

The engine of the compose suite has no network, so the image is built from wheels downloaded beforehand.
pip evaluates the markers of a lock file (`; python_full_version < '3.11.3'`) for the Python that runs pip, so this
module evaluates them for the image's Python.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

NEWEST_GLIBC = 36  # 2.36 is the version of Debian bookworm


def requirements_for(lock: str, python: str) -> str:
    r"""Return `lock` without the requirements that do not apply to `python`, and without markers.

    Parameters
    ----------
    lock : str
        A requirements file with entries `name==version ; marker \\` and indented `--hash` lines.
    python : str
        Full version of the Python to install for, as in "3.11.2".

    Raises
    ------
    packaging.requirements.InvalidRequirement
        If an entry does not begin with a requirement.

    """
    there = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    kept = []
    for entry in lock.replace("\\\n", " ").splitlines():
        text, *hashes = (field.strip() for field in entry.split("--hash="))
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(there):
            kept.append(" --hash=".join([f"{requirement.name}{requirement.specifier}", *hashes]))
    return "\n".join(kept)


def download(lock: Path, python: str, folder: Path) -> None:
    """Download the wheels that `lock` pins for `python` on this machine's processor into `folder`.

    Raises
    ------
    subprocess.CalledProcessError
        If pip finds no wheel with the pinned hash; its output names the package.

    """
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC, 4, -1)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(requirements_for(lock.read_text(), python))
        requirements.flush()
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--python-version", python, "--dest", str(folder)]
        command += [f"--platform={name}" for name in (*platforms, f"manylinux2014_{machine}")]
        subprocess.run([*command, "--requirement", requirements.name], check=True)


if __name__ == "__main__":
    download(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
