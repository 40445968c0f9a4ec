"""The two distributions: `glle`, the engine and the client, and `glle-server`, the API and the workers."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from glle import cli
from glle_engine import __version__, fit
from glle_engine.linalg import compiled
from service.cli.main import add_commands
from tests.system.conftest import ROOT

SERVER = ROOT / "deploy" / "server"
PACKAGES = {"glle": {"glle", "glle_engine"}, "glle_server": {"service", "worker"}}


def build(folder: Path, target: Path, *, kind: str = "wheel") -> Path:
    """Build the project in a folder without a network."""
    program = f"import sys; from hatchling.build import build_{kind} as build; print(build(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(target)], cwd=folder, check=True, capture_output=True, text=True
    )
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return both wheels by distribution."""
    target = tmp_path_factory.mktemp("wheels")
    return {"glle": build(ROOT, target), "glle_server": build(SERVER, target)}


@pytest.fixture
def dependencies(tmp_path: Path) -> Path:
    """Return a folder with this environment's packages except for those of this repository."""
    folder = tmp_path / "dependencies"
    folder.mkdir()
    for site in [Path(path) for path in sys.path if path.endswith("site-packages")]:
        for path in site.iterdir():
            link = folder / path.name
            if not path.name.startswith("glle") and path.suffix != ".pth" and not link.exists():
                link.symlink_to(path)
    return folder


def command(*words: str, path: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run `glle` with only these folders on the module path; return the completed process."""
    program = f"import sys; sys.path += {[str(folder) for folder in path]}; from glle.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *words], check=False, capture_output=True, text=True
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the sources that the client's wheel is built from, without compiled code."""
    folder = tmp_path / "checkout"
    for name in ("glle", "glle_engine", "openapi"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.parametrize("kind", ["wheel", "editable", "sdist"])
def test_builds_write_the_types_of_the_client(checkout: Path, tmp_path: Path, kind: str) -> None:
    """A build writes glle/types.py, which git ignores, and an sdist has what a build from it needs."""
    types = checkout / "glle" / "types.py"
    types.unlink()
    built = build(checkout, tmp_path, kind=kind)
    assert types.read_text() == (ROOT / "glle" / "types.py").read_text()
    if kind == "wheel":
        assert zipfile.ZipFile(built).read("glle/types.py").decode() == types.read_text()
    if kind == "sdist":
        shutil.unpack_archive(built, tmp_path)
        wheel = build(tmp_path / built.name.removesuffix(".tar.gz"), tmp_path)
        assert zipfile.ZipFile(wheel).read("glle/types.py").decode() == types.read_text()


def test_the_server_s_sdist_builds_its_wheel(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The wheel from the server's sdist equals that of the checkout; the sdist has the license, not a link to it."""
    assert (SERVER / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    sdist = build(SERVER, tmp_path, kind="sdist")
    shutil.unpack_archive(sdist, tmp_path)
    wheel = build(tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path)
    contents = [set(zipfile.ZipFile(path).namelist()) for path in (wheel, wheels["glle_server"])]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("distribution", PACKAGES)
def test_wheel_contains_exactly_its_packages(wheels: dict[str, Path], distribution: str) -> None:
    """Each wheel has its packages with their data files; the client's has no server code."""
    names = zipfile.ZipFile(wheels[distribution]).namelist()
    content = {name for name in names if ".dist-info/" not in name}
    paths = [path for package in PACKAGES[distribution] for path in (ROOT / package).rglob("*") if path.is_file()]
    assert content == {str(path.relative_to(ROOT)) for path in paths if "__pycache__" not in path.parts}
    assert [name for name in names if name.endswith("/LICENSE")] == [
        f"{distribution}-{__version__}.dist-info/licenses/LICENSE"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="wheels with compiled code are for Linux")
def test_wheel_with_compiled_code_compiles_nothing(dependencies: Path, checkout: Path, tmp_path: Path) -> None:
    """The wheel's compiled code is found in any folder, even a read-only one; its tag names Python and processor."""
    points = np.random.default_rng(0).random((200, 3))
    list(fit(points).draws(2))
    for path in (ROOT / "glle_engine").rglob("*.py"):
        if "\n@compiled\n" in path.read_text() and (compiled._CACHE / (name := compiled._folder(path))).exists():
            shutil.copytree(compiled._CACHE / name, checkout / "glle_engine" / "compiled" / name)
    wheel = build(checkout, tmp_path)
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"glle-{__version__}-{version}-none-manylinux_2_28_(x86_64|aarch64)\.whl", wheel.name)
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = f"""
import sys
sys.path += {[str(tmp_path / "site"), str(dependencies)]}
from numba.core import event
listener = event.RecordingListener()
event.register("numba:compile", listener)
import numpy as np
import glle
list(glle.fit(np.random.default_rng(0).random((200, 3))).draws(2))
print(glle.__file__, len(listener.buffer))
"""
    command = [sys.executable, "-I", "-S", "-c", program]
    cache = {"NUMBA_CACHE_DIR": os.devnull + "/cache"}
    done = subprocess.run(command, env=cache, check=True, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([str(tmp_path / "site" / "glle" / "__init__.py"), "0"], "")


def test_client_without_server_names_the_server_distribution(
    wheels: dict[str, Path], dependencies: Path, tmp_path: Path
) -> None:
    """`glle up` without the server is refused, and the error names the distribution to install.

    With the server the command exists, and needs only both wheels and their dependencies.
    """
    zipfile.ZipFile(wheels["glle"]).extractall(tmp_path / "site")
    path = [tmp_path / "site", dependencies]
    refused = command("up", path=path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "pip install glle-server" in refused.stderr
    zipfile.ZipFile(wheels["glle_server"]).extractall(tmp_path / "site")
    settings = command("settings", path=path)
    assert (settings.returncode, settings.stderr, "GLLE_REDIS_URL" in settings.stdout) == (0, "", True)


def test_commands_start_without_the_engine_s_libraries() -> None:
    """`glle settings` loads neither scipy's parts nor numba, which take a second."""
    program = "import sys; from service.cli.main import main; sys.argv[1:] = ['settings']; main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "worker.base.settings" in loaded
    assert not {"scipy.sparse", "scipy.linalg", "numba", "fastapi", "redis"} & loaded


def test_editable_server_copies_no_packages(tmp_path: Path) -> None:
    """An editable wheel holds only a path to the checkout, because copied packages would hide later changes."""
    names = zipfile.ZipFile(build(SERVER, tmp_path, kind="editable")).namelist()
    assert {name.partition("/")[0] for name in names} == {"_glle_server.pth", f"glle_server-{__version__}.dist-info"}


def test_client_message_lists_the_server_commands() -> None:
    """The client names only commands as parts of `glle-server` that this distribution has."""
    commands = argparse.ArgumentParser().add_subparsers()
    add_commands(commands)
    assert commands.choices.keys() >= cli.SERVER_COMMANDS


def test_every_dependency_has_an_upper_bound() -> None:
    """Requirements exclude the next major versions, which were not tested; locked versions are within the bounds."""
    locked: dict[str, set[str]] = {}
    for path in (ROOT / "requirements").glob("*.lock"):
        for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text(), re.MULTILINE):
            locked.setdefault(name.lower(), set()).add(version)
    for requirement in requirements():
        name, _, bounds = requirement.partition(";")[0].strip().partition(">=")
        assert re.fullmatch(r"[\d.]+,<[\d.]+", bounds), requirement
        lower, upper = (tuple(map(int, bound.split("."))) for bound in bounds.split(",<"))
        versions = [tuple(map(int, re.findall(r"\d+", version)[:3])) for version in locked.get(name.lower(), ())]
        assert all(lower <= version < upper for version in versions), requirement
        assert lower < upper <= (max([lower, *versions])[0] + 1,), requirement


def requirements() -> list[str]:
    """Return the requirements of both projects: dependencies, extras, groups and build back ends."""
    listed: list[str] = []
    for folder in (ROOT, SERVER):
        tables = tomllib.loads((folder / "pyproject.toml").read_text())
        project = tables["project"]
        lists = [
            tables["build-system"]["requires"],
            project["dependencies"],
            *project.get("optional-dependencies", {}).values(),
            *tables.get("dependency-groups", {}).values(),
        ]
        listed += [one for each in lists for one in each if isinstance(one, str)]
    client_requirement = f"glle[client]=={__version__}"
    assert client_requirement in listed, "both are released together"
    return [one for one in listed if one != client_requirement]
