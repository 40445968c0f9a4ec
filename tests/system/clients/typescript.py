"""Programs in TypeScript: compiled by `make -C qa typescript`, else run by a node that strips types."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.system.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CLIENT = ROOT / "clients" / "typescript"
TSC = CLIENT / "node_modules" / "typescript" / "bin" / "tsc"
IS_CHECKED = os.environ.get("TYPESCRIPT") == "checked"  # by `make -C qa typescript`; each compilation takes seconds
SECONDS = 600 if IS_CHECKED else 110
PROGRAM = ("--strict", "--target", "es2022", "--module", "nodenext")


@dataclass(frozen=True)
class TypeScript:
    """Folder with the package `glle` in its `node_modules`, as `npm install` leaves it."""

    folder: Path
    is_compiled: bool

    def run(self, program: Path, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program that imports `glle`."""
        copy = shutil.copy(program, self.folder)
        if self.is_compiled:
            types = ("--types", "node", "--typeRoots", str(CLIENT / "node_modules" / "@types"))
            run_node(str(TSC), *PROGRAM, *types, str(copy), cwd=self.folder)
            return run_node(str(self.folder / f"{program.stem}.js"), *arguments, cwd=cwd, **environment)
        return run_node("--conditions=source", str(copy), *arguments, cwd=cwd, **environment)

    def run_tests(self, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a file of the package's tests."""
        if not self.is_compiled:
            return run_node("--test", str(CLIENT / "test" / f"{name}.test.ts"), cwd=CLIENT, **environment)
        build = self.folder / "build"
        if not build.exists():
            compile_package("--project", "test", "--outDir", str(build))
        return run_node("--test", str(build / "test" / f"{name}.test.js"), cwd=self.folder, **environment)


def typescript(folder: Path) -> TypeScript:
    """Install the package `glle` in a folder; skip the test without a recent node, unless it is compiled."""
    version = node_version()
    is_compiled = IS_CHECKED and TSC.exists()
    if version < (20, 0) or not (is_compiled or has_type_stripping(version)):
        pytest.skip("needs node 22.18 or newer; `make -C qa typescript` compiles it for node 20")
    package = folder / "node_modules" / "glle"
    package.parent.mkdir()
    (folder / "package.json").write_text(json.dumps({"type": "module"}), encoding="utf-8")
    if is_compiled:
        compile_package("--outDir", str(package / "dist"))
        shutil.copy(CLIENT / "package.json", package)
    else:
        package.symlink_to(CLIENT)
    return TypeScript(folder, is_compiled)


def compile_package(*options: str) -> None:
    """Compile the package."""
    run_node(str(TSC), *options, cwd=CLIENT)


def node_version() -> tuple[int, int]:
    """Return the version of node; (0, 0) without one."""
    if shutil.which("node") is None:
        return 0, 0
    match = re.match(r"v(\d+)\.(\d+)", run_node("--version", cwd=ROOT).stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def has_type_stripping(version: tuple[int, int]) -> bool:
    """Return whether a node runs TypeScript without a flag."""
    return (22, 18) <= version < (23, 0) or version >= (23, 6)


def run_node(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run node; fail with its output unless it exits with 0."""
    done = subprocess.run(
        ["node", *command],  # noqa: S607 # the node of the machine
        cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done
