"""Machines of a fraction of a core each: three of them fit on two cores, and show what a third one adds."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds: short, so that a share is even within one shard
LAST_SECONDS = 5.0  # for which killed processes may still be about to go


def made(name: str, share: float) -> Path | None:
    """Return a cgroup whose processes together get this share of a core; None where none may be made.

    They get it before all others, so that what else runs on this machine has no part in the figures.
    """
    is_first = (CGROUPS / "cpu").is_dir()  # the version of cgroups
    folder = (CGROUPS / "cpu" if is_first else CGROUPS) / name
    quota = str(round(share * PERIOD))
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        if is_first:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(quota)
            (folder / "cpu.shares").write_text("262144")  # the maximum; a process outside of any group has 1,024
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD}")
            (folder / "cpu.weight").write_text("10000")
        return folder
    return None


def removed(prefix: str) -> None:
    """Remove the groups whose names begin so, once what ran in them is gone."""
    deadline = time.monotonic() + LAST_SECONDS
    while left := [*CGROUPS.glob(f"cpu/{prefix}*"), *CGROUPS.glob(f"{prefix}*")]:
        for folder in left:
            with suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
