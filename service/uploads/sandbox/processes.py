"""The API's side of the reader processes: their fork server, which is restarted if it dies, and their slots."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar

from service.uploads.disk_array import NO_MEMORY
from service.uploads.packing import Packing
from service.uploads.registry import ColumnRoles, Limits
from service.uploads.sandbox import child
from service.uploads.sandbox.forkserver import POSTERIOR_REQUEST, REQUEST
from service.uploads.sandbox.transfer import ReadRequest, content_length, read_outcome, table_of
from service.uploads.sandbox.turns import FairSemaphore
from worker.base.memory import memory_limit
from worker.base.problems import Problem, ProblemError, refuse
from worker.base.versions import numbers_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from worker.base.settings import Settings
    from worker.records.dataset import Table

CPU_SECONDS = 60  # of processor time for parsing one body
SECONDS = 120.0  # for parsing one body, and for its wait for a reader
MAX_READERS, MIN_BYTES, MAX_BYTES = 4, 2**26, 2**30  # readers of an API process; bytes of memory of one
GRACE_SECONDS = 10.0  # beyond the limit of a reader, after which the fork server counts as stuck
_MOST_STDERR = 4096  # bytes of a reader's standard error
_ATTEMPTS = 3  # to read a body, because the readers die with their fork server
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "NUMBA_CACHE_DIR",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
)  # none of these has a password
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # other pools reserve address space and keep freed memory
    "MALLOC_ARENA_MAX": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class ReaderExit:
    """Exit of a reader process.

    Parameters
    ----------
    status
        Wait status of `os.wait`; None if the fork server died.
    is_late
        Whether it exceeded its wall time.
    seconds
        Processor time.
    peak
        Peak memory in bytes, beyond that at its start.
    stderr
        End of its standard error.

    """

    status: int | None = None
    is_late: bool = False
    seconds: float = 0.0
    peak: int = 0
    stderr: str = ""


@dataclass(frozen=True)
class ReaderBudget:
    """Number of readers of an API process, and bytes of memory of each."""

    readers: int
    bytes: int

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the budget: the readers of all API processes share half of the memory."""
        room = memory_limit() // 2 // settings.api_processes
        nbytes = min(MAX_BYTES, max(MIN_BYTES, room // 2))
        return cls(min(MAX_READERS, max(1, room // nbytes)), nbytes)


class ReaderProcesses:
    """Pool of reader processes with limits on memory and time, one process for each body.

    Parameters
    ----------
    on_end
        Called with the exit of each process.
    budget
        Their number and memory; by default they follow from the memory of the machine or the container.

    """

    def __init__(
        self,
        settings: Settings,
        on_end: Callable[[ReaderExit], object] = lambda _: None,
        budget: ReaderBudget | None = None,
    ) -> None:
        self._settings = settings
        self._budget = budget or ReaderBudget.of(settings)
        self._folder = Path(settings.data_dir) / "incoming"
        self._on_end = on_end
        self._slots = FairSemaphore(self._budget.readers)
        self._server = _Server(SECONDS)
        weakref.finalize(self, self._server.close)

    def start(self) -> None:
        """Start the fork server before the first body."""
        self._server.start()

    def close(self) -> None:
        """Stop the fork server and its readers."""
        self._server.close()

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """Wait for the tenant's turn at a free reader, without a thread.

        Raises
        ------
        ProblemError
            ``readers-busy``.

        """
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._slots.slot(tenant, SECONDS))
            except TimeoutError:
                detail = f"All {self._budget.readers} readers are busy for {SECONDS:g} s."
                remedy = "Try again later, or give the API more memory or processes (GLLE_API_PROCESSES)."
                raise refuse("readers-busy", 503, detail, remedy) from None
            yield

    def read(self, content_type: str, body: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
        """Return the table of a body, read by its reader of the registry.

        Raises
        ------
        ProblemError
            That of the reader; ``reader-memory``, ``reader-timeout`` or ``reader-crashed`` if it ended without an
            outcome; ``readers-unavailable`` if none could start.
        OSError
            That of the reader, such as a full disk.

        """
        request = ReadRequest(content_type, limits, roles, self._budget.bytes, CPU_SECONDS)
        with tempfile.TemporaryFile(dir=self._folder) as result:
            return self._outcome(request, body, result, lambda outcome: table_of(outcome["table"], body, result))

    def unpack(self, packing: Packing, body: IO[bytes], result: IO[bytes]) -> Packing:
        """Unpack the outermost layer of a body into an empty file, rewound; raises as `read`."""
        packing.check()
        settings = self._settings
        request = ReadRequest(
            packing.content_type,
            Limits.of(settings),
            ColumnRoles(),
            self._budget.bytes,
            CPU_SECONDS,
            packing.encoding,
            settings.max_body,
        )
        unpacked = self._outcome(request, body, result, lambda outcome: Packing(**outcome["packing"]))
        result.truncate(content_length(result))
        result.seek(0)
        return replace(unpacked, fields={**packing.fields, **unpacked.fields})

    def read_posterior(self, tenant: str, body: IO[bytes], result: IO[bytes]) -> dict[str, Any]:
        """Return the facts of an exported posterior (`service.uploads.formats.posterior`); raises as `read`.

        Its checked content is then in the empty file `result`, rewound.
        """
        settings = self._settings
        request = ReadRequest(
            "application/zip",
            Limits.of(settings),
            ColumnRoles(),
            self._budget.bytes,
            CPU_SECONDS,
            tenant=tenant,
            numbers=numbers_of(settings),
        )
        facts = self._outcome(request, body, result, lambda outcome: dict(outcome["posterior"]))
        result.truncate(content_length(result))
        result.seek(0)
        return facts

    def _outcome(
        self, request: ReadRequest, body: IO[bytes], result: IO[bytes], convert: Callable[[dict[str, Any]], T]
    ) -> T:
        """Return the converted outcome of a request."""
        size = os.fstat(body.fileno()).st_size
        for _ in range(_ATTEMPTS):
            os.ftruncate(body.fileno(), size)  # discard the values of a dead reader
            result.seek(0)
            result.truncate()
            request.write(result)
            ended = self._server.read(body, result, POSTERIOR_REQUEST if request.tenant else REQUEST)
            if ended.status is None and not ended.is_late:
                continue
            self._on_end(ended)
            return self._converted(ended, request.content_type, result, convert)
        raise refuse(
            "readers-unavailable",
            503,
            "The process that reads uploads died repeatedly.",
            "Try again in some seconds. If that fails, check the log of the API and the machine's memory.",
        )

    def _converted(
        self, ended: ReaderExit, content_type: str, result: IO[bytes], convert: Callable[[dict[str, Any]], T]
    ) -> T:
        outcome = _outcome(ended, result)
        if outcome is None:
            raise self._failure(ended, content_type)
        if "problem" in outcome:
            raise ProblemError(Problem.from_dict(outcome["problem"]))
        try:
            return convert(outcome)
        except (ValueError, TypeError, KeyError):  # only a damaged reader writes such an outcome
            raise self._failure(ended, content_type) from None

    def _failure(self, ended: ReaderExit, content_type: str) -> Exception:
        """Return the error for a reader that ended without an outcome."""
        code, name = _end_of(ended.status)
        if code == child.NO_SPACE:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if code == child.FAILED:
            return RuntimeError(f"Unexpected error in a reader:\n{ended.stderr}")
        kind = content_type.partition(";")[0].strip().lower()
        log.warning(
            "The reader of %s ended with %s after %.1f s: %r", kind, name or code, ended.seconds, ended.stderr[:200]
        )
        if ended.is_late or (name in {"SIGXCPU", "SIGKILL"} and ended.seconds >= CPU_SECONDS):
            return refuse(
                "reader-timeout",
                422,
                f"Reading the body takes more than {CPU_SECONDS} s of processor time, or {SECONDS:g} s of wall time.",
                "Send fewer rows or columns, or npy.",
                cpu=CPU_SECONDS,
                seconds=SECONDS,
            )
        if code == child.NO_MEMORY or name == "SIGKILL" or NO_MEMORY in ended.stderr:
            return refuse(
                "reader-memory",
                413,
                f"Reading the body takes more than {self._budget.bytes:,} bytes of memory.",
                "Send fewer rows or columns, shorter labels, or npy; or give the API more memory.",
                allowed=self._budget.bytes,
            )
        return refuse(
            "reader-crashed",
            422,
            f"The reader of {kind} crashed on the body ({name or f'exit code {code}'}).",
            "The body may be damaged. Write it again with a current version of its library, or send npy or CSV.",
            signal=name,
        )


class _Server:
    """Fork server as a child process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
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

    def read(self, body: IO[bytes], result: IO[bytes], kind: bytes) -> ReaderExit:
        """Read a body in a reader process by a request of this kind; return the exit of the process."""
        reply, remote = socket.socketpair()
        with reply:
            with remote:
                self._send(kind, [body.fileno(), result.fileno(), remote.fileno()])
            reply.settimeout(self._seconds + GRACE_SECONDS)
            received = b""
            try:
                while piece := reply.recv(_MOST_STDERR):  # until the fork server and the reader have closed it
                    received = (received + piece)[-2 * _MOST_STDERR :]
            except TimeoutError:
                log.exception("The fork server of the readers is stuck; restarting it")
                self.close()
                return ReaderExit(is_late=True)
        stderr, _, line = received.rstrip(b"\n").rpartition(b"\n")
        try:
            end = json.loads(line)
        except ValueError:
            end = {"error": "the fork server died"}
        if "error" in end:
            log.error("No reader for a body: %s", end["error"])
            return ReaderExit()
        return ReaderExit(**end, stderr=stderr.decode(errors="replace")[-_MOST_STDERR:])

    def _send(self, kind: bytes, descriptors: list[int]) -> None:
        with self._lock:
            try:
                socket.send_fds(self._running(), [kind], descriptors)
            except OSError as error:  # it has just died, or could not start
                log.warning("The fork server of the readers does not accept a body: %s", error)
                self._end()

    def _running(self) -> socket.socket:
        """Return the socket of the fork server; start it unless it runs."""
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        if self._process is not None:
            log.warning("The fork server of the readers ended with %s; restarting it", self._process.returncode)
        self._end()
        self._control, remote = socket.socketpair()
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        with remote:
            self._process = subprocess.Popen(  # noqa: S603 # this very program
                [sys.executable, "-m", "service.uploads.sandbox.forkserver", str(self._seconds)],
                env={**environment, **_ONE_THREAD, "PYTHONPATH": path},
                stdin=remote.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must reach the API alone, which stops it
            )
        return self._control

    def _end(self) -> None:
        process, self._process = self._process, None
        control, self._control = self._control, None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()  # its readers die with it
            process.wait()


def _outcome(ended: ReaderExit, result: IO[bytes]) -> dict[str, Any] | None:
    """Return the outcome of a reader that exited with DONE, or None."""
    if ended.is_late or ended.status != child.DONE:
        return None
    try:
        return read_outcome(result)
    except (ValueError, TypeError):
        return None


def _end_of(status: int | None) -> tuple[int | None, str]:
    """Return the exit code of a wait status, and the name of its signal."""
    if status is None:
        return None, ""
    if os.WIFSIGNALED(status):
        try:
            return None, signal.Signals(os.WTERMSIG(status)).name
        except ValueError:
            return None, f"signal {os.WTERMSIG(status)}"
    return os.waitstatus_to_exitcode(status), ""
