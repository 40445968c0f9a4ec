"""Build hook of the distribution `glle`: the client's types, and compiled code if there is any (`make wheels`)."""

from __future__ import annotations

import platform
import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_GLIBC = "2_28"  # that the wheels of numba need


class GlleHook(BuildHookInterface[Any]):
    """Write glle/types.py before a build, and name the Python and the processor of a wheel with compiled code."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run openapi/client_types.py, which is not on the path of a build."""
        runpy.run_path(str(Path(self.root, "openapi", "client_types.py")))["main"]()
        if (self.target_name, version) == ("wheel", "standard") and Path(self.root, "glle_engine", "compiled").exists():
            if sys.platform != "linux":
                raise RuntimeError("Wheels with compiled code are for Linux. Remove glle_engine/compiled.")
            python = f"cp{sys.version_info.major}{sys.version_info.minor}"
            build_data["pure_python"] = False
            build_data["tag"] = f"{python}-none-manylinux_{_GLIBC}_{platform.machine()}"
