"""The API's side of the reader processes: it starts their fork server, and gives each body a free reader."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from service.uploads.limits import BAD_ALLOC
from service.uploads.sandbox import forkserver
from service.uploads.sandbox.forkserver import table_of
from worker.base.disk import temporary_file
from worker.base.memory import memory_limit
from worker.base.problems import Problem, ProblemError, refuse
from worker.records.shares import UNLIMITED, Share

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from glle_engine.tables.table import Table
    from service.uploads.reading import Upload
    from service.uploads.synthetic import Synthetic
    from worker.base.settings import Settings

MAX_CPU_SECONDS = 60  # a reader is stopped after this processor time for one body
MAX_READ_SECONDS = 120.0  # time limit for parsing one body, and for waiting for a reader
MAX_READERS = 4  # an API process has at most this many readers, besides the extra one for small bodies
MIN_BYTES, MAX_BYTES = 2**26, 2**30  # lower and upper limit on the bytes of memory that one reader may use
# One extra reader gets only bodies of at most this size, which it reads in less than a second, so that small bodies do
# not wait for large ones.
MAX_SMALL_BYTES = 2**18
READ_BYTES_PER_SECOND = 2**20  # how fast a reader reads a body, roughly
STUCK_SECONDS = 10.0  # a fork server that is silent for this long after a reader's time limit is restarted
_MAX_STDERR_CHARACTERS = 4096  # only this many last characters of a reader's standard error are kept
# Only this much of a reader's message is read; the names of 10,000 features, of 1,000 characters each, take a third.
_MAX_MESSAGE_BYTES = 2**27
_MAX_READ_ATTEMPTS = 3  # attempts to read a body, because readers die with their fork server
# The fork server gets only these variables of the environment, none of which has a password.
_ENVIRONMENT = {"PATH", "HOME", "XDG_CACHE_HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME"}
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # other pools reserve address space and keep freed memory
    "MALLOC_ARENA_MAX": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReaderExit:
    """How a reader process ended.

    Parameters
    ----------
    code
        Exit code, or the negative number of its signal; None if the fork server died.
    seconds
        Processor time.
    peak
        Peak memory in bytes, beyond the memory at its start.
    message
        Standard error; if the reader finished, followed by the outcome as a line of JSON.

    """

    code: int | None = None
    seconds: float = 0.0
    peak: int = 0
    message: str = ""


@dataclass(frozen=True)
class ReaderBudget:
    """Number of readers of an API process, without the extra one for small bodies, and bytes of memory of each."""

    readers: int
    bytes: int

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the number of readers of one API process, and the memory of each.

        Half of the memory of the machine or container is for readers, in equal parts for the API processes, but each
        process has at least one reader with `MIN_BYTES`.
        """
        room = memory_limit() // 2 // settings.api_processes
        nbytes = min(MAX_BYTES, max(MIN_BYTES, room // 2))
        return cls(min(MAX_READERS, max(1, room // nbytes)), nbytes)


class ReaderProcesses:
    """Pool of reader processes with limits on memory and time, one process for each body.

    Parameters
    ----------
    on_end
        Called with the `ReaderExit` of each reader.
    budget
        Number and memory of the readers; by default they follow from the memory of the machine or the container.
    share
        How many readers each tenant holds; by default one tenant may hold all.

    """

    def __init__(
        self,
        settings: Settings,
        on_end: Callable[[ReaderExit], object] = lambda _: None,
        budget: ReaderBudget | None = None,
        share: Share | None = None,
    ) -> None:
        self._settings = settings
        self._budget = budget or ReaderBudget.from_settings(settings)
        self._folder = Path(settings.data_dir) / "incoming"
        self._on_end = on_end
        share = share or Share(0, lambda _: UNLIMITED)
        share.total = self._budget.readers
        self._slots = _ReaderSlots(share)
        self._server = _ForkServer()
        weakref.finalize(self, self._server.close)

    def start(self) -> None:
        """Start the fork server before the first body."""
        self._server.start()

    def close(self) -> None:
        """Stop the fork server and its readers."""
        self._server.close()

    @asynccontextmanager
    async def slot(self, tenant: str, size: int) -> AsyncIterator[None]:
        """Reserve a reader for a body of `size` bytes while the context lasts.

        If no reader is free, the request waits for one on the event loop, without occupying a thread.

        Raises
        ------
        ProblemError
            ``readers-busy`` if no reader is free within `MAX_READ_SECONDS`.

        """
        async with self._slots.reserve(tenant, size) as has_reader:
            if not has_reader:
                detail = f"All {self._budget.readers} processes that read uploads were busy for {MAX_READ_SECONDS:g} s."
                remedy = (
                    "Try again later, or ask the administrator to raise GLLE_API_PROCESSES or the memory of the API."
                )
                raise refuse("readers-busy", 503, detail, remedy)
            yield

    def read_table(self, source: Upload | Synthetic, body: IO[bytes]) -> Table:
        """Return the table of an upload or of synthetic data, made in this process if that is safe, else by a reader.

        Raises
        ------
        ProblemError
            The reader's problem; ``reader-memory``, ``reader-timeout`` or ``reader-crashed`` if the reader ended
            without an outcome; ``readers-unavailable`` if no reader could start.
        OSError
            If the disk is full.
        RuntimeError
            If the reader met an unexpected error.

        """
        with temporary_file(self._folder) as out:
            if source.is_safe(body):
                return source.read(body, out)
            return self._run(source, body, out)

    def _run(self, source: Upload | Synthetic, body: IO[bytes], out: IO[bytes]) -> Table:
        """Return the table that a reader process makes; raise as `read_table`; try again if the fork server dies."""
        allowed = {"memory": self._budget.bytes, "cpu": MAX_CPU_SECONDS, "seconds": MAX_READ_SECONDS}
        made_by = {"source": source.source, "options": asdict(source)}
        request = json.dumps({"allowed": allowed, **made_by}).encode()
        for _ in range(_MAX_READ_ATTEMPTS):
            out.truncate(0)
            with temporary_file(self._folder) as message:
                ended = self._server.read(request, body, out, message)
            out.seek(0)
            if ended.code is not None:
                self._on_end(ended)
                return self._table(ended, source.label, out)
        remedy = "Try again in some seconds. If that fails, check the log of the API and the machine's memory."
        raise refuse("readers-unavailable", 503, "The process that reads uploads died repeatedly.", remedy)

    def _table(self, ended: ReaderExit, kind: str, out: IO[bytes]) -> Table:
        """Return the table of a reader that has ended, or raise its error.

        `kind` names the data in messages, such as text/csv.
        """
        if ended.code != forkserver.DONE:
            raise self._failure(ended, kind)
        try:
            outcome = json.loads(ended.message.rpartition("\n")[2])
            if "problem" not in outcome:
                return table_of(out, outcome)
            problem = Problem.from_dict(outcome["problem"])
        except (ValueError, TypeError, KeyError, AttributeError):  # only a damaged reader writes such an outcome
            raise self._failure(ended, kind) from None
        raise ProblemError(problem)

    def _failure(self, ended: ReaderExit, kind: str) -> Exception:
        """Return the error to raise for a reader process that ended without a table or a problem as its outcome.

        `kind` names the data in messages, such as text/csv.
        """
        code, stderr = ended.code or 0, ended.message[-_MAX_STDERR_CHARACTERS:]
        name = next((each.name for each in signal.Signals if each == -code), "")
        end = name or f"exit code {code}"
        if code == forkserver.NO_SPACE:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if code == forkserver.FAILED:
            return RuntimeError(f"Unexpected error in a reader:\n{stderr}")
        log.warning("The reader of %s ended with %s after %.1f s: %r", kind, end, ended.seconds, stderr[:200])
        if name in {"SIGXCPU", "SIGALRM"}:
            limits = f"{MAX_CPU_SECONDS} s of processor time, or {MAX_READ_SECONDS:g} s in all"
            remedy = "Send fewer rows or columns, or an npy file, which is read faster."
            detail = f"Reading the body takes more than {limits}."
            return refuse("reader-timeout", 422, detail, remedy, cpu=MAX_CPU_SECONDS, seconds=MAX_READ_SECONDS)
        if code == forkserver.NO_MEMORY or name == "SIGKILL" or BAD_ALLOC in stderr:
            detail = f"Reading the body takes more than {self._budget.bytes:,} bytes of memory."
            remedy = "Send fewer rows or columns, shorter labels, or npy; or give the API more memory."
            return refuse("reader-memory", 413, detail, remedy, allowed=self._budget.bytes)
        detail = f"The reader of {kind} crashed on the body ({end})."
        remedy = "The body may be damaged. Write it again with a current version of its library, or send npy or CSV."
        return refuse("reader-crashed", 422, detail, remedy, signal=name)


@dataclass(eq=False)
class _WaitingBody:
    """A body of `size` bytes that waits for a reader since the time `arrived`.

    When the body gets a reader, the result of the future `is_extra` is set: true for the extra reader, which only small
    bodies get, and false for any other.
    """

    tenant: str
    size: int
    arrived: float
    is_extra: asyncio.Future[bool]


class _ReaderSlots:
    """The queue of bodies for the readers: tenants take turns, and small bodies of a tenant precede its large ones.

    In addition to the readers that tenants share, one extra reader takes only small bodies, so that small bodies do not
    wait for large ones.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._waiting: list[_WaitingBody] = []
        self._has_extra = True
        self._readers_given = 0  # how many times a body has got a reader so far
        self._served: dict[str, int] = {}  # by tenant, the value of `_readers_given` when it last got a reader

    @asynccontextmanager
    async def reserve(self, tenant: str, size: int) -> AsyncIterator[bool]:
        """Reserve a reader for a body while the context lasts; yield whether one was free within `MAX_READ_SECONDS`."""
        body = _WaitingBody(tenant, size, time.monotonic(), asyncio.get_running_loop().create_future())
        self._waiting.append(body)
        self._serve()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_READ_SECONDS):
                    await asyncio.shield(body.is_extra)
            yield body.is_extra.done()
        finally:
            self._end(body)

    def _end(self, body: _WaitingBody) -> None:
        """End a body's wait or its use of a reader, and give the reader to a body that waits."""
        if body in self._waiting:  # the body has got no reader in time, or its request was cancelled
            self._waiting.remove(body)
            body.is_extra.cancel()
        elif body.is_extra.result():
            self._has_extra = True
        else:
            self._share.add(body.tenant, -1)
        tenants = {body.tenant for body in self._waiting} | set(self._share.held)
        self._served = {tenant: number for tenant, number in self._served.items() if tenant in tenants}
        self._serve()

    def _serve(self) -> None:
        """Give the free readers to bodies that wait."""
        while self._waiting:
            body = next((body for body in sorted(self._waiting, key=self._order) if self._give(body)), None)
            if body is None:
                return
            self._waiting.remove(body)
            self._readers_given += 1
            self._served[body.tenant] = self._readers_given

    def _give(self, body: _WaitingBody) -> bool:
        """Give a body a reader if one is free for it; return whether it got one."""
        if self._share.allows(body.tenant):
            self._share.add(body.tenant)
            body.is_extra.set_result(False)
        elif self._has_extra and body.size <= MAX_SMALL_BYTES:
            self._has_extra = False
            body.is_extra.set_result(True)
        else:
            return False
        return True

    def _order(self, body: _WaitingBody) -> tuple[int, int, float]:
        """Return the sort key of a waiting body: first come bodies of tenants that hold few readers.

        Among tenants with equally many readers, the one comes first that has waited longest since it last got one, and
        among its bodies the one that arrived first. The time that it takes to read the body is added to the time of its
        arrival, so that small bodies come earlier.
        """
        held, served = self._share.held[body.tenant], self._served.get(body.tenant, 0)
        return held, served, body.arrived + body.size / READ_BYTES_PER_SECOND


class _ForkServer:
    """The fork server of the readers as a child process, which is started again if it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Start the server unless it runs."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """Stop the server and wait for its end."""
        with self._lock:
            self._end()

    def read(self, request: bytes, body: IO[bytes], out: IO[bytes], message: IO[bytes]) -> ReaderExit:
        """Run a reader process on a body, as the JSON `request` says; return how the process ended.

        `out` and `message` are empty files. The request is written to `message`. The reader writes the arrays of the
        table to `out`, and appends its outcome (where they are in `out`, or a problem) to `message`.
        """
        message.write(request)
        message.flush()
        reply, remote = socket.socketpair()
        with reply:
            with remote, self._lock:
                files = [file.fileno() for file in (body, out, message, remote)]
                for _ in range(2):
                    try:
                        socket.send_fds(self._running(), [forkserver.REQUEST], files)
                        break
                    except OSError as error:  # the server has died or cannot start; another one is started
                        log.warning("The fork server of the readers does not accept a body: %s", error)
                        self._end()
            reply.settimeout(MAX_READ_SECONDS + STUCK_SECONDS)
            try:
                exit_ = reply.recv(_MAX_STDERR_CHARACTERS)  # empty if watcher and reader died without an exit code
            except TimeoutError:
                log.exception("The fork server of the readers is stuck; restarting it")
                self.close()
                return ReaderExit(-signal.SIGALRM)
        if not exit_:
            return ReaderExit()
        message.seek(len(request))
        return ReaderExit(**json.loads(exit_), message=message.read(_MAX_MESSAGE_BYTES).decode(errors="replace"))

    def _running(self) -> socket.socket:
        """Return the socket to the fork server; start the server first unless it runs."""
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        if self._process is not None:
            log.warning("The fork server of the readers ended with %s; restarting it", self._process.returncode)
        self._end()
        self._control, remote = socket.socketpair()
        path = os.pathsep.join(folder for folder in sys.path if folder)
        environment = {name: os.environ[name] for name in _ENVIRONMENT.intersection(os.environ)}
        with remote:
            self._process = subprocess.Popen(  # this Python runs the fork server
                [sys.executable, "-m", "service.uploads.sandbox.forkserver"],
                env={**environment, **_ONE_THREAD, "PYTHONPATH": path},
                stdin=remote.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must reach only the API, which stops the fork server
            )
        return self._control

    def _end(self) -> None:
        process, self._process = self._process, None
        control, self._control = self._control, None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()  # the readers die with their fork server
            process.wait()
