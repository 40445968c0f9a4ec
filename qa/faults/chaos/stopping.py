"""The command `glle`, whose processes end themselves right before one of their writes when the killer asks them to.

A kill at a random time rarely falls between two writes, because these take microseconds and a computation takes
seconds. The killer therefore writes a number into a file in the folder `CHAOS_STOPS`, which is named by the pid of a
process. After this number of further writes, the process ends right before the next one (`tests.stop_points`), and
leaves the name of this write in a file beside the request.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from service.cli.main import main
from tests.stop_points import install

FOLDER = "CHAOS_STOPS"  # variable with the folder of the requests


class StopOnRequest:
    """Decides before each write of this process whether the process ends now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left: dict[int, int] = {}  # writes before the end, by pid, because forks inherit this object
        self._is_busy = False  # the files of this class are writes, too

    def __call__(self, name: str) -> bool:
        """Return whether this is the write before which the process was asked to end; `name` names the write."""
        if self._is_busy:
            return False
        pid = os.getpid()
        request = self._folder / str(pid)
        if pid not in self._left:
            if not request.exists():
                return False
            self._left[pid] = int(request.read_text())
        self._left[pid] -= 1
        if self._left[pid] >= 0:
            return False
        self._is_busy = True
        request.with_suffix(".at").write_text(name)
        return True


def die() -> None:
    """End this process by SIGKILL, so that nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    install(StopOnRequest(Path(os.environ[FOLDER])), die)
    sys.exit(main())
