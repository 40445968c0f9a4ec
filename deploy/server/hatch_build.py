"""Build hook of the distribution `glle-server`: its packages are at the top of the repository."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackagesHook(BuildHookInterface[Any]):
    """Adds `service` and `worker` to a wheel; an editable install has the repository on its path instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the folders, outside of this one, that go into the wheel."""
        if version == "standard":
            build_data["force_include"] = {"../../service": "service", "../../worker": "worker"}
