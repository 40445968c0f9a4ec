"""A network that loses packets: the servers in a separate namespace, at the other end of a pair of interfaces."""

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

    from qa.faults.degraded.deployment import House

_IP, _NFT, _NSENTER, _UNSHARE = (shutil.which(name) or name for name in ("ip", "nft", "nsenter", "unshare"))
_TABLE = ("netdev", "glle")
_LOST = re.compile(r"counter packets (\d+)")


@dataclass(frozen=True)
class Link:
    """The way to a namespace.

    Parameters
    ----------
    address
        Of the other end.
    inside
        Words before a command line, which run it there.

    """

    address: str
    inside: tuple[str, ...]

    def losing(self, percent: int) -> Situation:
        """Return the situation of so many packets in a hundred that are lost at random, each way."""

        @contextmanager
        def trouble(_: House) -> Iterator[None]:
            self._nft("add", "table", *_TABLE)
            for hook in ("ingress", "egress"):
                chain = f"{{ type filter hook {hook} device glle0 priority 0; }}"
                self._nft("add", "chain", *_TABLE, hook, chain)
                self._nft("add", "rule", *_TABLE, hook, f"numgen random mod 100 < {percent} counter drop")
            try:
                yield
                lost = _LOST.findall(self._nft("list", "table", *_TABLE))
                assert len(lost) == 2, lost
                assert all(map(int, lost)), f"Nothing was lost: {lost}"
            finally:
                self._nft("delete", "table", *_TABLE)

        return Situation(f"network: {percent} % of the packets lost", trouble, 5.0)

    def _nft(self, *words: str) -> str:
        return subprocess.run([*self.inside, _NFT, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def can_lose() -> bool:
    """Say whether packets of a namespace can be dropped here."""
    asked = [_UNSHARE, "--net", _NFT, "add", "table", *_TABLE]
    return subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode == 0


@contextmanager
def far_away() -> Iterator[Link]:
    """Make a namespace and the way to it; both are gone when their holder is.

    Raises
    ------
    OSError, subprocess.CalledProcessError
        When it may not be made.

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
    """Return what a bad network is; a slow one is before the servers' proxies."""
    return [Situation("network: another host, nothing lost", nothing, 2.0), link.losing(5), link.losing(20)]
