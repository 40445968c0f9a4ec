"""Fork server of the reader processes: a program that has loaded the readers' libraries, and forks for each upload.

Starting a process with pyarrow takes half a second, forking takes some milliseconds. The API has many threads and must
not fork; this program has one thread, and none of the API's secrets. Its standard input is a socket. Each byte on the
socket carries the descriptors of a body, an output file, a message file with the request, and a socket for the exit
code. The reader limits itself before it reads, and a watcher process reports how the reader ended.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import math
import os
import resource
import signal
import socket
import sys
import traceback
from importlib.abc import MetaPathFinder
from typing import IO, Any, NoReturn

import numpy as np

from glle_engine.tables.table import EXTRAS, Table
from service.encoding.media_types import has_arrow
from service.uploads.reading import Upload
from service.uploads.synthetic import Synthetic
from worker.base.disk import open_reserving, require_room_in
from worker.base.memory import limit_memory, offer_to_oom_killer
from worker.base.problems import ProblemError
from worker.execution.process_guard import die_with_parent
from worker.records.dataset import VALUES, Array

SOURCES: dict[str, type[Upload | Synthetic]] = {each.source: each for each in (Upload, Synthetic)}
REQUEST = b"r"  # the byte with which the file descriptors of a request are sent: they cannot be sent without a byte
DONE, NO_MEMORY, NO_SPACE, FAILED = 0, 77, 78, 79  # exit codes; only after DONE the message file has an outcome
_EXIT_CODES = {errno.ENOMEM: NO_MEMORY, errno.ENOSPC: NO_SPACE, errno.EDQUOT: NO_SPACE}
_ALIGNED = 64  # arrays begin at a multiple of this many bytes, as in npy files
_DTYPE_KINDS = "fiubU"  # kinds of dtypes that a table may have
_GRACE_SECONDS = 5  # processor time between SIGXCPU and SIGKILL


def main() -> None:
    """Fork for each request until the API closes the socket; then all readers end."""
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_IGN)  # the API ends this process, by closing the socket, its standard input
    _load()
    server, before = os.getpid(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with socket.socket(fileno=0) as control:
        while True:
            byte, descriptors, _, _ = socket.recv_fds(control, 1, 4)
            if not byte:
                return
            with contextlib.suppress(OSError):  # if the fork fails, the API sees the socket close without an exit code
                if not os.fork():
                    _watch(descriptors, server, before)
            for descriptor in descriptors:
                os.close(descriptor)


def _watch(descriptors: list[int], server: int, before: int) -> NoReturn:
    """In a fork: fork the reader, report to the API how the reader ended, and end this process.

    `descriptors` are the file descriptors of the API's request: the body, the output file, the message file with the
    request, and the socket for the report. `server` is the process id of the fork server, `before` its peak memory in
    KiB, which is subtracted from the reader's.
    """
    try:
        die_with_parent(signal.SIGKILL, server)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        watcher = os.getpid()
        body, out, message, reply = descriptors
        if not (pid := os.fork()):
            die_with_parent(signal.SIGKILL, watcher)
            null = os.open(os.devnull, os.O_RDWR)
            for standard, descriptor in enumerate((null, null, message)):
                os.dup2(descriptor, standard)  # a library may write to standard error before it aborts
            # The reader keeps `reply` open, so that the socket closes only when watcher and reader have both ended. The
            # API starts a second reader for the body only then, and two readers never write the same file.
            work(body, out, message)
        _, status, used = os.wait4(pid, 0)
        peak = 1024 * max(0, used.ru_maxrss - before)
        exit_ = {"code": os.waitstatus_to_exitcode(status), "seconds": used.ru_utime + used.ru_stime, "peak": peak}
        os.write(reply, json.dumps(exit_).encode())
    finally:
        os._exit(0)


def work(body: int, out: int, message: int) -> NoReturn:
    """In the reader process: read an upload, and exit. The arguments are descriptors of three files.

    `message` has the request, which says how to read `body`. The arrays of the table are written to `out`. The outcome,
    which says where they are in `out`, or what the problem is, is appended to `message`.
    """
    code = FAILED
    try:
        with os.fdopen(body, "rb") as file, os.fdopen(message, "r+b", 0) as messages:
            messages.seek(0)
            request = json.loads(messages.read())
            restrict(**request["allowed"])
            file.seek(0)
            messages.write(
                b"\n" + _read(SOURCES[request["source"]].from_dict(request["options"]), file, open_reserving(out))
            )
        code = DONE
    except MemoryError:
        code = NO_MEMORY
    except OSError as error:
        code = _EXIT_CODES.get(error.errno or 0, FAILED)
        traceback.print_exc()
    except BaseException:  # noqa: BLE001 # the API logs it
        traceback.print_exc()
    finally:
        os._exit(code)


def restrict(memory: int, cpu: int, seconds: float) -> None:
    """Limit this process to `memory` further bytes, `cpu` seconds of processor time and `seconds` of wall time."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + _GRACE_SECONDS))
    signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM ends the process
    offer_to_oom_killer()
    limit_memory(memory)


def _read(source: Upload | Synthetic, file: IO[bytes], out: IO[bytes]) -> bytes:
    """Return the outcome of a request as JSON: where the arrays of the table are in `out`, or the problem.

    If the disk has no room for this JSON, the outcome is the problem ``storage-full``, which is short enough to be
    written into the disk's reserve.
    """
    try:
        encoded = json.dumps(write_table(out, source.read(file, out))).encode()
        require_room_in(out, len(encoded))
    except ProblemError as error:
        return json.dumps({"problem": error.problem.to_dict()}).encode()
    return encoded


class _NoPandas(MetaPathFinder):
    """Finder that hides pandas: pyarrow would import it, which takes half a second, and no reader needs it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for pandas; return None for other modules, which Python then imports as usual."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _load() -> None:
    """Import what the readers need, before the first fork.

    A reader that imported pyarrow itself would take half a second longer, and start a thread when it reads Parquet.
    """
    if has_arrow():
        sys.meta_path.insert(0, _NoPandas())
        import narwhals  # noqa: F401, PLC0415 # before the fork
        import pyarrow as pa  # noqa: PLC0415 # an extra

        from service.uploads.formats import arrow_table  # noqa: F401, PLC0415 # before the fork

        # At its first conversion pyarrow looks for pandas; here it does so once, and not again in each reader.
        pa.array([None, 1.0]).fill_null(0).to_numpy(zero_copy_only=False)
    gc.collect()
    gc.freeze()  # the readers then share these pages


def write_table(out: IO[bytes], table: Table) -> dict[str, Any]:
    """Append the arrays of a table to the file `out`, except those that are mapped from it.

    Returns, ready for JSON, the location of each array, and the names and the source of the table.
    """
    out.seek(0, os.SEEK_END)
    arrays = {name: _place(out, array) for name, array in {VALUES: table.values, **table.extras}.items()}
    out.flush()
    return {"arrays": arrays, "names": table.names, "source": table.source}


def table_of(out: IO[bytes], outcome: dict[str, Any]) -> Table:
    """Return the table that a reader described by `write_table`, its arrays mapped from `out`; nothing is unpickled.

    Raises
    ------
    ValueError, TypeError, KeyError, AttributeError
        If an array has an unexpected dtype, or is not within the file.

    """
    arrays: dict[str, Any] = {
        name: _map_array(out, place) for name, place in outcome["arrays"].items() if name in (VALUES, *EXTRAS)
    }
    return Table(**arrays, names=outcome["names"], source=outcome["source"])


def _place(out: IO[bytes], array: Array) -> dict[str, Any]:
    """Return where an array is in the file `out`: offset, dtype, shape and order.

    An array that `map_rows` has mapped from `out` is there already; any other array is appended to the file first.
    """
    order = "C" if array.flags.c_contiguous or not array.flags.f_contiguous else "F"
    if isinstance(array, np.memmap) and array.mode == "r+":
        offset = array.offset
    else:
        offset = -(-out.tell() // _ALIGNED) * _ALIGNED
        out.seek(offset)
        out.write(np.ascontiguousarray(array if order == "C" else array.T).reshape(-1).view(np.uint8).data)
    return {"offset": offset, "dtype": array.dtype.str, "shape": array.shape, "order": order}


def _map_array(file: IO[bytes], location: dict[str, Any]) -> Array:
    dtype, shape, offset = np.dtype(location["dtype"]), tuple(location["shape"]), location["offset"]
    if dtype.kind not in _DTYPE_KINDS or not all(type(size) is int and size > 0 for size in (*shape, dtype.itemsize)):
        raise ValueError(f"unexpected array of {dtype} and shape {shape}")
    room = os.fstat(file.fileno()).st_size - math.prod(shape) * dtype.itemsize
    if type(offset) is not int or not 0 <= offset <= room:
        raise ValueError(f"an array at byte {offset} with shape {shape} and dtype {dtype} goes beyond its file")
    return np.memmap(file, dtype, "r", offset, shape, "F" if location["order"] == "F" else "C")


if __name__ == "__main__":
    main()
