"""Fork server of the reader processes: a program that has the readers' libraries loaded, and forks one a body.

A start with pyarrow takes half a second, a fork some milliseconds. The API is a program of many threads, which must not
fork; this one has a single thread. Each byte on standard input, a socket, brings three descriptors: body, result and
reply. What the reader writes to its standard error goes to `reply`, and then a line of JSON with its end. The end of
the input ends everything.
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
from pathlib import Path

import numpy as np

from service.encoding.arrow import ARROW, has_arrow
from service.uploads.registry import Apart, Limits, reader_of
from service.uploads.sandbox import child
from worker.base.settings import Settings
from worker.execution import process_guard

ORDER = b"r"
DESCRIPTORS = 3  # an order brings: body, result, reply


@dataclass
class Reader:
    """A reader process at work."""

    pid: int
    reply: int
    deadline: float
    before: float  # bytes of memory at its start, which are the fork server's
    is_late: bool = False


class ForkServer:
    """Forks a reader for each order, and reports its end.

    Parameters
    ----------
    control
        The socket of the orders.
    seconds
        Wall time of a reader.

    """

    def __init__(self, control: socket.socket, seconds: float) -> None:
        self._control = control
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._readers: dict[int, Reader] = {}  # by the pipe that ends with them

    def serve(self) -> None:
        """Serve until the API is gone."""
        is_over = False
        while not is_over:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._control:
                    is_over = not self._order()
                else:
                    self._end(key.fd)
            for reader in self._readers.values():
                if not reader.is_late and time.monotonic() >= reader.deadline:
                    reader.is_late = True
                    os.kill(reader.pid, signal.SIGKILL)
        for reader in self._readers.values():
            os.kill(reader.pid, signal.SIGKILL)

    def _patience(self) -> float | None:
        """Return the seconds until a reader is late, None when none can be."""
        left = [reader.deadline - time.monotonic() for reader in self._readers.values() if not reader.is_late]
        return max(0.0, min(left)) if left else None

    def _order(self) -> bool:
        """Fork for the next order; return whether there was one."""
        message, descriptors, _, _ = socket.recv_fds(self._control, len(ORDER), DESCRIPTORS)
        if not message:
            return False
        body, result, reply = descriptors
        ended, alive = os.pipe()
        server, before = os.getpid(), _memory()
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes
            _report(reply, error=str(error))
            for descriptor in (*descriptors, ended, alive):
                os.close(descriptor)
            return True
        if pid == 0:
            try:
                process_guard.die_with_parent(signal.SIGKILL, server)
                _close_but({body, result, reply, alive})  # the API sees the end of `reply` when no process holds it
                os.dup2(reply, 2)  # the last words of a library that ends the process
            except BaseException:  # noqa: BLE001 # a reader never returns into the loop
                os._exit(child.FAILED)
            child.work(body, result)
        for descriptor in (body, result, alive):
            os.close(descriptor)
        self._readers[ended] = Reader(pid, reply, time.monotonic() + self._seconds, before)
        self._selector.register(ended, selectors.EVENT_READ)
        return True

    def _end(self, ended: int) -> None:
        """Report how a reader ended."""
        self._selector.unregister(ended)
        os.close(ended)
        reader = self._readers.pop(ended)
        with contextlib.suppress(ProcessLookupError):
            os.kill(reader.pid, signal.SIGKILL)  # one that closed its pipe by itself, and goes on
        _, status, used = os.wait4(reader.pid, 0)
        peak = max(0, used.ru_maxrss * 1024 - reader.before)
        _report(reader.reply, status=status, is_late=reader.is_late, seconds=used.ru_utime + used.ru_stime, peak=peak)
        os.close(reader.reply)


def _memory() -> int:
    """Return the bytes of resident memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _report(reply: int, **fields: object) -> None:
    with contextlib.suppress(OSError):  # the API has gone
        os.write(reply, json.dumps(fields).encode() + b"\n")


def _close_but(kept: set[int]) -> None:
    """Close all descriptors but these; the standard ones lead nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    for path in list(Path("/dev/fd").iterdir()):
        if (descriptor := int(path.name)) > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # of the listing itself
                os.close(descriptor)


def _load() -> None:
    """Load what the readers import when they need it, by reading small bodies."""
    npz = io.BytesIO()
    np.savez_compressed(npz, data=np.zeros((2, 1)), l=np.array(["a", "b"]))
    bodies = {"text/csv": b"x,l\n1,a\n2,b\n", "application/zip": npz.getvalue()}
    if has_arrow():
        import pyarrow as pa  # noqa: PLC0415 # an extra
        from pyarrow import compute, parquet  # noqa: F401, PLC0415 # before the fork, because reading Parquet would start a thread

        table, stream = pa.table({"x": [1.0, 2.0], "l": ["a", "b"]}), io.BytesIO()
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        bodies[ARROW] = stream.getvalue()
    with contextlib.suppress(OSError):  # without room for them the first bodies take some tenths of a second longer
        for kind, body in bodies.items():
            with tempfile.TemporaryFile() as file:
                file.write(body)
                file.seek(0)
                reader_of(kind, "", Settings()).read(file, Limits(2, 2), Apart("l"))
    gc.collect()
    gc.freeze()  # what is shared with the readers stays shared


def main() -> None:
    """Serve on standard input; the argument is the wall time of a reader in seconds."""
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)  # the end of the input ends it
    with socket.socket(fileno=os.dup(0)) as control:
        _load()
        ForkServer(control, float(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
