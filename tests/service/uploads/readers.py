"""Reader processes of a fork server, as the system lists them."""

from __future__ import annotations

from pathlib import Path


def descendants(process: int | str) -> list[str]:
    """Return the child processes of a process, and theirs."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [*children, *(later for each in children for later in descendants(each))]
