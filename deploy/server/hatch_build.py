"""Build hook of the distribution `glle-server`: its packages are at the top of the repository, or of an sdist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackagesHook(BuildHookInterface[Any]):
    """Add `service` and `worker` to a wheel; an editable install adds the repository to the path instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the wheel's folders, which are outside of this one in a checkout."""
        if version == "standard":
            folder = Path(self.root)
            above = folder if (folder / "service").is_dir() else folder.parents[1]
            build_data["force_include"] = {str(above / name): name for name in ("service", "worker")}
