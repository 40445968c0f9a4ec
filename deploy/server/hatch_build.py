"""Build hook of the distribution `glle-server`: its packages are at the top of the repository."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackagesHook(BuildHookInterface[Any]):
    """Add `service` and `worker` to a wheel; an editable install adds the repository to the path instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the wheel's folders, which are outside of this one."""
        if version == "standard":
            build_data["force_include"] = {"../../service": "service", "../../worker": "worker"}
