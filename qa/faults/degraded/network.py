"""Packet loss: the servers run in a separate network namespace behind a pair of interfaces."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qa.faults.degraded.situations import Situation, nothing
from tests.conftest import until
from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qa.faults.degraded.deployment import Deployment

_IP, _NFT, _NSENTER, _UNSHARE = (shutil.which(name) or name for name in ("ip", "nft", "nsenter", "unshare"))
_TABLE = ("netdev", "glle")
_LOST = re.compile(r"counter packets (\d+)")


@dataclass(frozen=True)
class Link:
    """Interface pair to a namespace.

    Parameters
    ----------
    address
        Address of the other end.
    inside
        Prefix of a command line that enters the namespace.

    """

    address: str
    inside: tuple[str, ...]

    def losing(self, percent: int) -> Situation:
        """Return the situation of random packet loss, in percent, in both directions."""

        @contextmanager
        def trouble(_: Deployment) -> Iterator[None]:
            self._nft("add", "table", *_TABLE)
            for hook in ("ingress", "egress"):
                chain = f"{{ type filter hook {hook} device glle0 priority 0; }}"
                self._nft("add", "chain", *_TABLE, hook, chain)
                self._nft("add", "rule", *_TABLE, hook, f"numgen random mod 100 < {percent} counter drop")
            try:
                yield
                lost = _LOST.findall(self._nft("list", "table", *_TABLE))
                assert len(lost) == 2, lost
                assert all(map(int, lost)), f"No packet was lost: {lost}"
            finally:
                self._nft("delete", "table", *_TABLE)

        return Situation(f"network: {percent} % of the packets lost", trouble, seconds=5.0)

    def _nft(self, *words: str) -> str:
        return subprocess.run([*self.inside, _NFT, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def can_lose() -> bool:
    """Return whether nft can drop packets of a namespace on this machine."""
    asked = [_UNSHARE, "--net", _NFT, "add", "table", *_TABLE]
    return subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode == 0


@contextmanager
def remote_namespace() -> Iterator[Link]:
    """Create a namespace and the link to it; both disappear with their holder process.

    Raises
    ------
    OSError, subprocess.CalledProcessError
        If namespaces are not permitted.

    """
    number = os.getpid() % 250
    interface, here, there = f"glle{os.getpid()}", f"10.213.{number}.1", f"10.213.{number}.2"
    with subprocess.Popen(
        [_UNSHARE, "--net", "sleep", "infinity"],
        stderr=subprocess.DEVNULL,
        preexec_fn=process_guard.preexec(signal.SIGKILL),  # noqa: PLW1509 # started by the main thread
    ) as holder:
        try:
            ours = Path("/proc/self/ns/net").readlink()
            until(lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != ours or holder.poll() is not None, 5)
            inside = (_NSENTER, "--target", str(holder.pid), "--net")
            for command in (
                (_IP, "link", "add", interface, "type", "veth", "peer", "name", "glle0", "netns", str(holder.pid)),
                (_IP, "address", "add", f"{here}/30", "dev", interface),
                (_IP, "link", "set", interface, "up"),
                (*inside, _IP, "address", "add", f"{there}/30", "dev", "glle0"),
                (*inside, _IP, "link", "set", "glle0", "up"),
                (*inside, _IP, "link", "set", "lo", "up"),
            ):
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            yield Link(there, inside)
        finally:
            holder.kill()


def situations(link: Link) -> list[Situation]:
    """Return the network situations; delay is applied by the servers' proxies instead."""
    return [Situation("network: another host, nothing lost", nothing, seconds=2.0), link.losing(5), link.losing(20)]
