"""Machines as network namespaces on one bridge, with faulty links, CPU quotas and a load balancer.

The balancer polls /readyz of each process and sends new connections to ready ones. Quotas let three machines with a
fraction of a core each fit on two cores.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx

from qa.faults.proxy import Proxy
from qa.frame import repeat

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

BRIDGE = "glle0"
SUBNET = "10.77.0"
HOST_ADDRESS = f"{SUBNET}.1"  # address of the test process
LOSS = "loss"  # nft table of the packet loss rules
NAMESPACES = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds; short, so that the share is even within one shard
LAST_SECONDS = 5.0  # time for killed processes to end, s
PROBE_SECONDS, PROBE_PATIENCE = 0.25, 2.0
CONNECT_SECONDS = 1.0


def run(*command: str) -> str:
    """Run a command and return its output; raise with its stderr on failure."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


@dataclass
class Machine:
    """A machine: its processes have a separate network and host name, and share the disks.

    Parameters
    ----------
    quota
        Cgroup folder and the share of a core of all its processes together; None for no limit.

    """

    name: str
    address: str
    quota: Path | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def plug_in(self) -> None:
        """Create the machine's network."""
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", self.link, "master", BRIDGE, "up")
        for command in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            run("ip", "-n", self.name, *command)
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    @property
    def link(self) -> str:
        """Name of the interface at the bridge."""
        return f"v-{self.name}"

    def start(
        self, command: list[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process on the machine."""
        enter = ["nsenter", f"--net={NAMESPACES / self.name}", "unshare", "--uts", "sh", "-c"]
        named = f'hostname {self.name} && exec "$@"'
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*enter, named, self.name, *command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=self._join,  # noqa: PLW1509 # before the process has threads or children outside
            )
        self.processes.append(process)
        return process

    def _join(self) -> None:
        if self.quota is not None:
            (self.quota / "cgroup.procs").write_text("0")

    def pids(self) -> list[int]:
        """Return the processes of the machine."""
        return [int(pid) for pid in run("ip", "netns", "pids", self.name).split()]

    def kill(self) -> None:
        """Kill all processes of the machine with SIGKILL."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def vanish(self) -> None:
        """Power off: no connection is closed."""
        run("ip", "link", "del", self.link)
        self.kill()
        run("ip", "netns", "del", self.name)

    def cut(self) -> None:
        """Disconnect the link."""
        run("ip", "link", "set", self.link, "down")

    def heal(self) -> None:
        """Connect the link again."""
        run("ip", "link", "set", self.link, "up")

    def lose(self, percent: int) -> None:
        """Drop this percentage of packets at random, in both directions."""
        lost = f"numgen random mod 100 < {percent} drop"
        chains = (f"chain {hook} {{ type filter hook {hook} priority 0; {lost}; }}" for hook in ("input", "output"))
        run("ip", "netns", "exec", self.name, "nft", "\n".join([f"table inet {LOSS} {{", *chains, "}"]))

    def throttle(self, rate: str) -> None:
        """Limit the rate of the link, in the syntax of `tc`; packets that wait too long are dropped."""
        qdisc = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
        run("tc", "qdisc", "replace", "dev", self.link, *qdisc)
        run("ip", "netns", "exec", self.name, "tc", "qdisc", "replace", "dev", "eth0", *qdisc)

    def mend(self) -> None:
        """Restore the link."""
        inside = ("ip", "netns", "exec", self.name)
        if LOSS in run(*inside, "nft", "list", "tables"):
            run(*inside, "nft", "delete", "table", "inet", LOSS)
        for where, device in (((), self.link), (inside, "eth0")):
            if "tbf" in run(*where, "tc", "qdisc", "show", "dev", device):
                run(*where, "tc", "qdisc", "del", "dev", device, "root")


class Network:
    """A bridge with machines; everything ends with the namespaces of this process."""

    def __init__(self) -> None:
        self._numbers = count(11)
        self.addresses: dict[str, str] = {}
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{HOST_ADDRESS}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")

    def machine(self, name: str, quota: Path | None = None) -> Machine:
        """Return a machine with a separate address; a machine that vanished keeps its address."""
        if name not in self.addresses:
            self.addresses[name] = f"{SUBNET}.{next(self._numbers)}"
        machine = Machine(name, self.addresses[name], quota)
        machine.plug_in()
        return machine


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


class Balancer(Proxy):
    """Load balancer: it polls /readyz of each process, and passes new connections to the ready ones in turn.

    Parameters
    ----------
    backends
        Addresses and ports of the processes.

    Attributes
    ----------
    ready : set
        Backends whose last /readyz was 200.

    """

    def __init__(self, host: str, backends: list[tuple[str, int]]) -> None:
        super().__init__(backends[0], host)
        self.ready: set[tuple[str, int]] = set()
        self.url = f"http://{host}:{self.port}"
        self._backends = backends
        self._turns = cycle(backends)
        self._probes = repeat(*(partial(self._probe, backend) for backend in backends), seconds=PROBE_SECONDS)

    def __enter__(self) -> Self:
        self._probes.__enter__()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._probes.__exit__(kind, error, traceback)

    def _probe(self, backend: tuple[str, int]) -> None:
        is_ready = False
        with suppress(httpx.TransportError):
            url = f"http://{backend[0]}:{backend[1]}/readyz"
            is_ready = httpx.get(url, timeout=PROBE_PATIENCE).status_code == httpx.codes.OK
        (self.ready.add if is_ready else self.ready.discard)(backend)

    def _connect(self) -> socket.socket:
        """Return a connection to the next ready backend that accepts it."""
        for backend in islice(self._turns, len(self._backends)):
            if backend in self.ready:
                with suppress(OSError):
                    return socket.create_connection(backend, timeout=CONNECT_SECONDS)
        raise ConnectionRefusedError
