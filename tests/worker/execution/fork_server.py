"""Fork server of worker processes: a worker starts within milliseconds, because the engine is loaded once.

`python -m tests.worker.execution.fork_server` reads requests and writes responses, one JSON document a line.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

from glle_engine.eigen.eigenproblem import warm
from glle_engine.posterior.fingerprint import fingerprint
from service.cli.main import main


def serve() -> None:
    """Answer requests until the end of standard input."""
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            response = os.waitstatus_to_exitcode(status) if pid else None
        else:
            response = os.fork() or _work(**request)
        sys.stdout.write(f"{json.dumps(response)}\n")
        sys.stdout.flush()


def _work(name: str, environment: dict[str, str], before: str) -> Any:
    """Run `glle worker` in a new session, as a process that was started with this environment."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.environ.clear()
        os.environ.update(environment)
        exec(before, {})  # noqa: S102 # the program of a test
        code = main(["worker", "--name", name])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    importlib.import_module("worker.execution.parent")  # as the command does
    warm()
    fingerprint()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; standard input ends with the tests
    serve()
