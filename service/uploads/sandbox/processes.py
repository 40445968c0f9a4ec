"""The API's side of the reader processes: their fork server, started again when it died, and turns to use them."""

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
import tempfile
import threading
import weakref
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from service.uploads.disk_array import NO_MEMORY
from service.uploads.sandbox import child
from service.uploads.sandbox.forkserver import ORDER
from service.uploads.sandbox.transfer import Order, read_outcome, table_of
from worker.base.problems import Problem, ProblemError, refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from service.uploads.registry import Apart, Limits
    from worker.base.settings import Settings
    from worker.records.dataset import Table

GRACE_SECONDS = 10.0  # beyond the wall time of a reader, after which the fork server counts as stuck
_MOST_WORDS = 4096  # bytes of a reader's standard error
_ATTEMPTS = 3  # to read a body: a fork server that dies takes its readers along
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME")  # no password is in these
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve address space, and keep what is freed
    "MALLOC_ARENA_MAX": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """The end of a reader process.

    Parameters
    ----------
    status
        As `os.wait` returns it; None where the fork server died.
    is_late
        Whether its wall time was over.
    seconds
        Processor time.
    peak
        Bytes of memory at most, beyond those at its start.
    words
        What it wrote to its standard error, the end of it.

    """

    status: int | None = None
    is_late: bool = False
    seconds: float = 0.0
    peak: int = 0
    words: str = ""


class ReaderProcesses:
    """Reads bodies, each in a process with limits on its memory and its time.

    Parameters
    ----------
    on_end
        Called with the end of each process.

    """

    def __init__(self, settings: Settings, on_end: Callable[[Ended], object] = lambda _: None) -> None:
        self._settings = settings
        self._folder = Path(settings.data_dir) / "incoming"
        self._on_end = on_end
        self._turns = asyncio.Semaphore(settings.readers)
        self._server = _Server(settings.reader_seconds)
        weakref.finalize(self, self._server.close)

    def start(self) -> None:
        """Start the fork server, so that the first body does not wait for it."""
        self._server.start()

    def close(self) -> None:
        """End the fork server and its readers."""
        self._server.close()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait, without a thread, until a reader is free.

        Raises
        ------
        ProblemError
            ``readers-busy``.

        """
        seconds = self._settings.reader_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._turns.acquire()
        except TimeoutError:
            detail = f"{self._settings.readers} bodies are being read, and none of them ended in {seconds:g} s."
            raise refuse("readers-busy", 503, detail, "Try again later, or raise GLLE_READERS.") from None
        try:
            yield
        finally:
            self._turns.release()

    def read(self, content_type: str, body: IO[bytes], limits: Limits, apart: Apart) -> Table:
        """Return the table of a body, as `service.uploads.registry` reads it.

        Raises
        ------
        ProblemError
            Those of the reader; ``reader-memory``, ``reader-timeout``, ``reader-crashed`` where it ended without an
            answer, and ``readers-unavailable`` where none could be started.
        OSError
            Those of the reader, such as a full disk.

        """
        order = Order(content_type, limits, apart, self._settings.reader_bytes, self._settings.reader_cpu)
        size = os.fstat(body.fileno()).st_size
        for _ in range(_ATTEMPTS):
            os.ftruncate(body.fileno(), size)  # what a reader that is gone has unpacked
            with tempfile.TemporaryFile(dir=self._folder) as result:
                order.write(result)
                ended = self._server.ended(body, result)
                if ended.status is not None or ended.is_late:
                    self._on_end(ended)
                    return self._table(ended, content_type, body, result)
        raise refuse(
            "readers-unavailable",
            503,
            "The process that reads uploads does not stay alive.",
            "Try again in some seconds; if it stays, look at the log of the API, and at the machine's memory.",
        )

    def _table(self, ended: Ended, content_type: str, body: IO[bytes], result: IO[bytes]) -> Table:
        outcome = _outcome(ended, result)
        if outcome is None:
            raise self._failure(ended, content_type)
        if "problem" in outcome:
            raise ProblemError(Problem.from_dict(outcome["problem"]))
        try:
            return table_of(outcome["table"], body, result)
        except (ValueError, TypeError, KeyError):  # no table that a reader in its right mind writes
            raise self._failure(ended, content_type) from None

    def _failure(self, ended: Ended, content_type: str) -> Exception:
        """Return the error of a reader that ended without an outcome."""
        code, name = _end_of(ended.status)
        if code == child.NO_SPACE:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if code == child.FAILED:
            return RuntimeError(f"A reader met an error that it should not have met:\n{ended.words}")
        kind, settings = content_type.partition(";")[0].strip().lower(), self._settings
        words = ended.words[:200]
        log.warning("The reader of %s ended with %s after %.1f s: %r", kind, name or code, ended.seconds, words)
        if ended.is_late or (name in {"SIGXCPU", "SIGKILL"} and ended.seconds >= settings.reader_cpu):
            return refuse(
                "reader-timeout",
                422,
                f"Reading the body takes more than {settings.reader_cpu} s of processor time, or"
                f" {settings.reader_seconds:g} s in all.",
                "Send fewer rows or columns, or npy; or raise GLLE_READER_CPU or GLLE_READER_SECONDS.",
                cpu=settings.reader_cpu,
                seconds=settings.reader_seconds,
            )
        if code == child.NO_MEMORY or name == "SIGKILL" or NO_MEMORY in ended.words:
            return refuse(
                "reader-memory",
                413,
                f"Reading the body takes more than {settings.reader_bytes:,} bytes of memory.",
                "Send fewer rows or columns, shorter labels, or npy; or raise GLLE_READER_BYTES.",
                allowed=settings.reader_bytes,
            )
        return refuse(
            "reader-crashed",
            422,
            f"The reader of {kind} crashed on the body ({name or f'exit code {code}'}).",
            "The body is damaged. Write it again with a current version of its library, or send npy or CSV.",
            signal=name,
        )


class _Server:
    """The fork server as a child process of this one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End it, and wait for that."""
        with self._lock:
            self._end()

    def ended(self, body: IO[bytes], result: IO[bytes]) -> Ended:
        """Have a body read; return how its reader ended."""
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                self._order([body.fileno(), result.fileno(), theirs.fileno()])
            mine.settimeout(self._seconds + GRACE_SECONDS)
            received = b""
            try:
                while piece := mine.recv(_MOST_WORDS):  # until fork server and reader have no end of it any more
                    received = (received + piece)[-2 * _MOST_WORDS :]
            except TimeoutError:
                log.exception("The fork server of the readers is stuck, and is started again")
                self.close()
                return Ended(is_late=True)
        words, _, line = received.rstrip(b"\n").rpartition(b"\n")
        try:
            end = json.loads(line)
        except ValueError:
            end = {"error": "the fork server died"}
        if "error" in end:
            log.error("A body has no reader: %s", end["error"])
            return Ended()
        return Ended(**end, words=words.decode(errors="replace")[-_MOST_WORDS:])

    def _order(self, descriptors: list[int]) -> None:
        with self._lock:
            try:
                socket.send_fds(self._running(), [ORDER], descriptors)
            except OSError as error:  # it died a moment ago, or could not be started
                log.warning("The fork server of the readers does not take a body: %s", error)
                self._end()

    def _running(self) -> socket.socket:
        """Return the socket of the fork server, which is started unless it runs."""
        if self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        if self._process is not None:
            log.warning("The fork server of the readers ended with %s, and is started again", self._process.returncode)
        self._end()
        self._control, theirs = socket.socketpair()
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 # this very program
                [sys.executable, "-m", "service.uploads.sandbox.forkserver", str(self._seconds)],
                env={**environment, **_ONE_THREAD, "PYTHONPATH": path},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the API, which ends it
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


def _outcome(ended: Ended, result: IO[bytes]) -> dict[str, Any] | None:
    """Return the outcome of a reader that ended well."""
    if ended.is_late or ended.status != child.DONE:
        return None
    try:
        return read_outcome(result)
    except (ValueError, TypeError):
        return None


def _end_of(status: int | None) -> tuple[int | None, str]:
    """Return the exit code of a wait status, or the name of its signal."""
    if status is None:
        return None, ""
    if os.WIFSIGNALED(status):
        try:
            return None, signal.Signals(os.WTERMSIG(status)).name
        except ValueError:
            return None, f"signal {os.WTERMSIG(status)}"
    return os.waitstatus_to_exitcode(status), ""
