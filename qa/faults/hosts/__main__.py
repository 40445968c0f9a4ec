"""Runs the tests on several machines: python -m qa.faults.hosts [--only NAME ...] [--out FOLDER].

Needs Linux, and root or user namespaces: everything happens in separate namespaces, so that all that it makes
(processes, networks, mounts) ends with it, however it ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from qa.faults.hosts.network import quotas
from worker.execution import process_guard

TOOLS = ("ip", "tc", "nft", "unshare", "nsenter", "mount")
INSIDE = "HOSTS_FOLDER"


def main() -> int:
    """Go into namespaces, run everything there, and clean up outside; return the exit code."""
    if INSIDE in os.environ:
        return _first_process()
    if (reason := _impossible()) is not None:
        print(f"qa.faults.hosts is skipped: {reason}", file=sys.stderr)
        return 0
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda result, _: sys.exit(128 + result))  # by way of what cleans up
    with tempfile.TemporaryDirectory(prefix="glle-hosts-") as folder:
        try:
            return subprocess.run(
                [*_unshare(), sys.executable, "-m", "qa.faults.hosts", *sys.argv[1:]],
                env={**os.environ, INSIDE: folder},
                preexec_fn=process_guard.preexec(signal.SIGKILL),
                check=False,
            ).returncode
        finally:
            quotas.removed(Path(folder).name)


def _unshare() -> list[str]:
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *root, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _impossible() -> str | None:
    """Return why there can be no machines here, None if there can."""
    if sys.platform != "linux":
        return "namespaces are Linux's."
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found; on Debian: apt-get install iproute2 nftables util-linux mount"
    tried = subprocess.run([*_unshare(), "ip", "link", "add", "a0", "type", "veth"], capture_output=True, check=False)
    if tried.returncode:
        return f"no namespaces may be made here ({tried.stderr.decode().strip()}); as root they may."
    return None


def _first_process() -> int:
    """Be the process that inherits the orphans of all others: run the tests in a child, and reap."""
    child = os.fork()
    if child == 0:
        os._exit(_inside())
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _inside() -> int:
    from qa.faults.hosts.running import run_all  # noqa: PLC0415 # numpy has threads, and a process with threads is not forked

    try:
        return run_all(_parser().parse_args(), Path(os.environ[INSIDE]))
    except Exception:  # noqa: BLE001 # the last word of a process that ends without Python's own
        traceback.print_exc()
        return 2
    finally:
        sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m qa.faults.hosts", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="scenarios; all of them where none is named"
    )
    parser.add_argument("--runs", type=int, default=5, help="of each figure of throughput; the median counts")
    parser.add_argument("--out", type=Path, default=Path("out/hosts"), help="folder of the JSON report and the logs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
