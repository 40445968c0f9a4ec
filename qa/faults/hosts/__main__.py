"""Run the tests on several machines: `python -m qa.faults.hosts [--only NAME ...] [--out FOLDER]`.

Needs Linux, and root or user namespaces. All processes, networks and mounts live in separate namespaces, so they end
with the program.
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

from qa.faults.hosts.network import remove_cgroups
from worker.execution import process_guard

TOOLS = ("ip", "tc", "nft", "unshare", "nsenter", "mount")
INSIDE = "HOSTS_FOLDER"


def main() -> int:
    """Enter namespaces, run everything inside, and clean up outside; return the exit code."""
    if INSIDE in os.environ:
        return _first_process()
    if (reason := _impossible()) is not None:
        print(f"qa.faults.hosts is skipped: {reason}", file=sys.stderr)
        return 0
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda result, _: sys.exit(128 + result))  # so that the cleanup runs
    with tempfile.TemporaryDirectory(prefix="glle-hosts-") as folder:
        try:
            return subprocess.run(
                [*_unshare(), sys.executable, "-m", "qa.faults.hosts", *sys.argv[1:]],
                env={**os.environ, INSIDE: folder},
                preexec_fn=process_guard.preexec(signal.SIGKILL),
                check=False,
            ).returncode
        finally:
            remove_cgroups(Path(folder).name)


def _unshare() -> list[str]:
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *root, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _impossible() -> str | None:
    """Return the reason why namespaces are impossible on this machine, or None."""
    if sys.platform != "linux":
        return "network namespaces need Linux."
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found; on Debian: apt-get install iproute2 nftables util-linux mount"
    tried = subprocess.run([*_unshare(), "ip", "link", "add", "a0", "type", "veth"], capture_output=True, check=False)
    if tried.returncode:
        return f"namespaces are not permitted ({tried.stderr.decode().strip()}); run as root."
    return None


def _first_process() -> int:
    """Act as the init process of the namespace: run the tests in a child, and reap orphans."""
    child = os.fork()
    if child == 0:
        os._exit(_inside())
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _inside() -> int:
    from qa.faults.hosts.scenarios import run_all  # noqa: PLC0415 # before numpy starts threads, because a process with threads must not fork

    try:
        return run_all(_parser().parse_args(), Path(os.environ[INSIDE]))
    except Exception:  # noqa: BLE001 # the last message of a process that bypasses Python's exit
        traceback.print_exc()
        return 2
    finally:
        sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m qa.faults.hosts", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="scenarios to run (all)")
    parser.add_argument("--out", type=Path, default=Path("out/hosts"), help="folder of the JSON report and the logs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
