"""Fork server of the reader processes: a program with the readers' libraries loaded that forks for each body.

A start with pyarrow takes half a second, a fork some milliseconds. The API has many threads and must not fork; this
program has one. Each byte on standard input, a socket, carries three descriptors: body, result and reply. `reply` gets
the standard error of the reader, then a line of JSON with its exit. The end of the input ends all processes.
An exported posterior has another byte, because its reader needs the engine, which takes most of a second to load.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import selectors
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path

import numpy as np

from service.encoding.arrow import ARROW, has_arrow
from service.uploads.formats.posterior import load_engine
from service.uploads.registry import ColumnRoles, Limits, reader_of
from service.uploads.sandbox import child
from worker.base.settings import Settings
from worker.execution import process_guard

REQUEST, POSTERIOR_REQUEST = b"r", b"p"
DESCRIPTORS = 3  # of a request: body, result, reply


@dataclass
class Reader:
    """Running reader process."""

    pid: int
    reply: int
    deadline: float
    before: float  # bytes of memory at its start, shared with the fork server
    is_late: bool = False


class ForkServer:
    """Server that forks a reader for each request, and reports its exit.

    Parameters
    ----------
    control
        Socket of the requests.
    seconds
        Wall-time limit of a reader.

    """

    def __init__(self, control: socket.socket, seconds: float) -> None:
        self._control = control
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._readers: dict[int, Reader] = {}  # by the pipe that closes at their end

    def serve(self) -> None:
        """Serve until the API closes the socket."""
        is_closed = False
        while not is_closed:
            for key, _ in self._selector.select(self._timeout()):
                if key.fileobj is self._control:
                    is_closed = not self._accept()
                else:
                    self._end(key.fd)
            for reader in self._readers.values():
                if not reader.is_late and time.monotonic() >= reader.deadline:
                    reader.is_late = True
                    os.kill(reader.pid, signal.SIGKILL)
        for reader in self._readers.values():
            os.kill(reader.pid, signal.SIGKILL)

    def _timeout(self) -> float | None:
        """Return the seconds until the next deadline of a reader, or None."""
        remaining = [reader.deadline - time.monotonic() for reader in self._readers.values() if not reader.is_late]
        return max(0.0, min(remaining)) if remaining else None

    def _accept(self) -> bool:
        """Fork for the next request; return False at the end of the input."""
        message, descriptors, _, _ = socket.recv_fds(self._control, len(REQUEST), DESCRIPTORS)
        if not message:
            return False
        if message == POSTERIOR_REQUEST:
            load_engine()  # once for all readers
        body, result, reply = descriptors
        ended, alive = os.pipe()
        server, before = os.getpid(), _memory()
        try:
            pid = os.fork()
        except OSError as error:  # out of memory, or too many processes
            _report(reply, error=str(error))
            for descriptor in (*descriptors, ended, alive):
                os.close(descriptor)
            return True
        if pid == 0:
            try:
                process_guard.die_with_parent(signal.SIGKILL, server)
                _close_except({body, result, reply, alive})  # the API reads `reply` until no process holds it
                os.dup2(reply, 2)  # a library may write there before it aborts
            except BaseException:  # noqa: BLE001 # a reader must not return into the loop
                os._exit(child.FAILED)
            child.work(body, result)
        for descriptor in (body, result, alive):
            os.close(descriptor)
        self._readers[ended] = Reader(pid, reply, time.monotonic() + self._seconds, before)
        self._selector.register(ended, selectors.EVENT_READ)
        return True

    def _end(self, ended: int) -> None:
        """Report the exit of a reader."""
        self._selector.unregister(ended)
        os.close(ended)
        reader = self._readers.pop(ended)
        with contextlib.suppress(ProcessLookupError):
            os.kill(reader.pid, signal.SIGKILL)  # it may have closed its pipe and still run
        _, status, used = os.wait4(reader.pid, 0)
        peak = max(0, used.ru_maxrss * 1024 - reader.before)
        _report(reader.reply, status=status, is_late=reader.is_late, seconds=used.ru_utime + used.ru_stime, peak=peak)
        os.close(reader.reply)


def _memory() -> int:
    """Return the bytes of resident memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _report(reply: int, **fields: object) -> None:
    with contextlib.suppress(OSError):  # the API has ended
        os.write(reply, json.dumps(fields).encode() + b"\n")


def _close_except(kept: set[int]) -> None:
    """Close all other descriptors, and open the standard ones on /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    for path in list(Path("/dev/fd").iterdir()):
        if (descriptor := int(path.name)) > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(descriptor)


class _NoPandas(MetaPathFinder):
    """Finder that hides pandas, which pyarrow imports (half a second) if it can, and no reader needs."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for pandas."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _load() -> None:
    """Load the lazy imports of the readers by reading small bodies."""
    npz = io.BytesIO()
    np.savez_compressed(npz, data=np.zeros((2, 1)), l=np.array(["a", "b"]))
    bodies = {"text/csv": b"x,l\n1,a\n2,b\n", "application/zip": npz.getvalue()}
    if has_arrow():
        sys.meta_path.insert(0, _NoPandas())
        import pyarrow as pa  # noqa: PLC0415 # an extra
        from pyarrow import compute, parquet  # noqa: F401, PLC0415 # before the fork, because reading Parquet would start a thread

        table, stream = pa.table({"x": [1.0, 2.0], "l": ["a", "b"]}), io.BytesIO()
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        bodies[ARROW] = stream.getvalue()
    with contextlib.suppress(OSError):  # on a full disk; the first bodies then load the libraries
        for kind, body in bodies.items():
            with tempfile.TemporaryFile() as file:
                file.write(body)
                file.seek(0)
                reader_of(kind, Settings()).read(file, Limits(2, 2), ColumnRoles("l"))
    gc.collect()
    gc.freeze()  # keep the pages shared with the readers


def main() -> None:
    """Serve on standard input; the argument is the wall-time limit of a reader in seconds."""
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)  # only the end of the input stops it
    with socket.socket(fileno=os.dup(0)) as control:
        _load()
        ForkServer(control, float(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
