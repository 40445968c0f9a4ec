"""Description of the machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "tapkee", "redis", "fastapi", "uvicorn")


def machine() -> dict[str, Any]:
    """Return processor, caches, memory and versions."""
    fields: dict[str, Any] = {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        facts = {name.strip(): value.strip() for name, value in lines.items()}
        fields["processor"] = facts.get("model name", "unknown")
        flags = facts.get("flags", "").split()
        fields["vectors"] = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "SSE"
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = (index / "level").read_text().strip(), (index / "type").read_text().strip()
        if kind != "Instruction":
            caches[f"L{level}"] = (index / "size").read_text().strip()
    fields["caches"] = caches
    fields["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    fields["libraries"] = {name: found for name in LIBRARIES if (found := _version(name))}
    fields["blas_threads"] = os.environ.get("OMP_NUM_THREADS")
    return fields


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
