"""CPU quotas: three machines with a fraction of a core each fit on two cores."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds; short, so that the share is even within one shard
LAST_SECONDS = 5.0  # time for killed processes to end, s


def create_cgroup(name: str, share: float) -> Path | None:
    """Return a cgroup with this share of a core, or None if cgroups are not available.

    The group has the highest weight, so that other processes do not change the figures.
    """
    is_first = (CGROUPS / "cpu").is_dir()  # cgroup version 1
    folder = (CGROUPS / "cpu" if is_first else CGROUPS) / name
    quota = str(round(share * PERIOD))
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        if is_first:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(quota)
            (folder / "cpu.shares").write_text("262144")  # the maximum; the default of a process is 1,024
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD}")
            (folder / "cpu.weight").write_text("10000")
        return folder
    return None


def remove_cgroups(prefix: str) -> None:
    """Remove the groups with this prefix once their processes have ended."""
    deadline = time.monotonic() + LAST_SECONDS
    while remaining := [*CGROUPS.glob(f"cpu/{prefix}*"), *CGROUPS.glob(f"{prefix}*")]:
        for folder in remaining:
            with suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
