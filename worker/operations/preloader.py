"""Preloading process: it imports a program once and forks a process for each command (Linux).

    head --(socket: command, descriptors)--> preloader --fork--> helper --fork--> process of the command

A start takes seconds of imports, a fork milliseconds. The preloader has one thread and no connection. The helper ends
at once and the head adopts the process, which thus ends with the head, and outlives a killed preloader.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from worker.execution import process_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

NOT_STARTED = 1  # exit code of a process that did not start
ADOPTED_SECONDS = 0.0005  # between two looks whether the head has adopted the process
TITLE = " " * 256  # last argument of a preloader: the memory of the command lines of its processes
_REQUEST_BYTES, _DESCRIPTORS = 2**16, 1
_ARGUMENTS = slice(45, 47)  # fields of /proc/self/stat behind the name: addresses of the command line


class Forked:
    """Process that a preloader forks, with the methods of `subprocess.Popen` that a process tree uses.

    Attributes
    ----------
    pid : int
        0 until the process runs.
    returncode : int or None
        As of `subprocess.Popen`; `NOT_STARTED` if the preloader ended first.

    """

    def __init__(self, reply: socket.socket) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self._reply = reply
        reply.settimeout(0.0)

    def poll(self) -> int | None:
        """Return the exit code, or None before the end."""
        if self.returncode is None and not self.pid:
            self._receive()
        if self.returncode is None and self.pid:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode = NOT_STARTED
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Send a signal; a process that does not run yet will not start."""
        if self.returncode is None and not self.pid:
            self._reply.shutdown(socket.SHUT_RD)  # from now on the process cannot report its pid, and ends
            self.poll()
        if self.pid and self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def _receive(self) -> None:
        """Read the pid; its absence at the end of the socket means that there is no process."""
        try:
            pid = self._reply.recv(32)
        except BlockingIOError:
            return
        except ConnectionError:
            pid = b""
        self._reply.close()
        self.pid = int(pid or b"0")
        if not pid:
            self.returncode = NOT_STARTED


class Preloader:
    """A preloader, as its head sees it; started by the first command, and again by the next one after its end.

    Parameters
    ----------
    program
        Arguments of a Python process that calls `serve`. The number of its socket and `TITLE` follow. In the command
        lines of forked processes the last one is replaced by the command.
    environment
        Of all its processes.

    """

    def __init__(self, program: Sequence[str], environment: Mapping[str, str]) -> None:
        self._program = program
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The pid of the preloader; 0 before its start."""
        return 0 if self._process is None else self._process.pid

    def fork(self, command: Sequence[str], descriptors: Sequence[int] = ()) -> Forked:
        """Run a command in a forked process, which inherits at most one descriptor under another number."""
        reply, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with remote:
            request = json.dumps(list(command)).encode()
            with contextlib.suppress(OSError):  # it has just ended; the process then counts as ended, too
                socket.send_fds(self._running(), [request], [remote.fileno(), *descriptors])
        return Forked(reply)

    def reap(self, children: Collection[int]) -> None:
        """Reap the ended descendants that this process has adopted; `children` are its other child processes."""
        if self._process is not None:
            self._process.poll()
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in children:
                return
            os.waitpid(ended.si_pid, 0)

    def close(self) -> None:
        """Kill the preloader; its processes run on."""
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> socket.socket:
        """Return the socket of the preloader; start it unless it runs."""
        if self._process is None or self._control is None or self._process.poll() is not None:
            self.close()
            self._control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with remote:
                self._process = subprocess.Popen(  # noqa: S603 # the caller's program
                    [sys.executable, *self._program, str(remote.fileno()), TITLE],
                    env=self._environment,
                    pass_fds=(remote.fileno(),),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C reaches the head alone
                    preexec_fn=process_guard.preexec(signal.SIGKILL),  # noqa: PLW1509 # the head has one thread
                )
        return self._control


def serve(
    control: int, load: Callable[[Sequence[str]], object], run: Callable[[Sequence[str], Sequence[int]], int]
) -> int:
    """Fork a process for each command until the head ends; return the exit code of this process.

    Parameters
    ----------
    control
        Descriptor of the socket of commands.
    load
        Import what a command needs, before the fork. It starts no thread and opens no connection.
    run
        Run a command, in its process, with the descriptors for it; return the exit code.

    """
    head = os.getppid()
    gc.disable()  # imports leave hardly any garbage, and collections take a tenth of their time
    with socket.socket(fileno=control) as commands:
        while True:
            message, descriptors, _, _ = socket.recv_fds(commands, _REQUEST_BYTES, 1 + _DESCRIPTORS)
            if not message:
                return 0
            command = json.loads(message)
            load(command)
            gc.freeze()  # keep the pages shared
            if _adopted(head):
                break
            for descriptor in descriptors:
                os.close(descriptor)
    with socket.socket(fileno=descriptors[0]) as reply:
        try:
            reply.send(str(os.getpid()).encode())
        except OSError:  # the head stops
            return NOT_STARTED
    gc.enable()
    entitle(command)
    return run(command, descriptors[1:])


def _adopted(head: int) -> bool:
    """Fork a child of the head; return whether this process is the child."""
    try:
        helper = os.fork()
        if helper:
            os.waitpid(helper, 0)
            return False
    except OSError as error:  # out of memory, or too many processes
        print(f"A process cannot be forked: {error}", file=sys.stderr, flush=True)  # noqa: T201 # the head's log
        return False
    parent = os.getpid()
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(NOT_STARTED)
    os.setsid()
    while os.getppid() == parent:
        time.sleep(ADOPTED_SECONDS)
    process_guard.die_with_parent(signal.SIGKILL, head)
    return True


def entitle(command: Sequence[str]) -> None:
    """Show a command in the command line of this process, in place of the last three arguments."""
    path = Path("/proc/self")
    start, end = map(int, path.joinpath("stat").read_text().rpartition(")")[2].split()[_ARGUMENTS])
    kept = path.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")[:-3]
    line = b"\0".join([*kept, *(word.encode() for word in command)])[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)
