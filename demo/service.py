"""`glle up` as a child process of the demo."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

_READY = re.compile(r"ready at (http://\S+)")


@contextmanager
def running_service(workers: int) -> Iterator[str]:
    """Run `glle up` on a free port, with embedded Redis servers and a temporary data folder; yield the URL.

    Raises
    ------
    RuntimeError
        If the service ends before it is ready; the message has its output.

    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLLE_")}
    environment["GLLE_LOG_LEVEL"] = "warning"  # the demo prints progress itself
    with tempfile.TemporaryDirectory(prefix="glle-demo-") as folder:
        command = [sys.executable, "-m", "service.cli", "up", "--port", "0", "--workers", str(workers)]
        process = subprocess.Popen(  # noqa: S603 # this Python
            [*command, "--data-dir", folder],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).resolve().parent.parent,
            start_new_session=True,  # Ctrl-C reaches only the demo, which stops the service
            preexec_fn=process_guard.preexec(signal.SIGTERM),  # noqa: PLW1509 # the service ends with this process
        )
        try:
            yield _url(process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    output = []
    for line in process.stderr:
        output.append(line)
        if match := _READY.search(line):
            # Forwarded continuously, because a full pipe would block the service.
            threading.Thread(target=shutil.copyfileobj, args=(process.stderr, sys.stderr), daemon=True).start()
            return match[1]
    raise RuntimeError("The service did not start:\n" + "".join(output))
