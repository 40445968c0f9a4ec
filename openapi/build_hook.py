"""Build hook of the distribution `glle`: its types are written from the contract, and not committed."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TypesHook(BuildHookInterface[Any]):
    """Write glle/types.py before a wheel, an editable install or an sdist is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run openapi/client_types.py, which is not on the path of a build."""
        del version, build_data
        runpy.run_path(str(Path(self.root, "openapi", "client_types.py")))["main"]()
