"""Objects behind an fsspec URL: each request has a time limit, and each failure is a problem.

fsspec's back ends differ in their exceptions and their timeouts. So each request runs in a separate thread with a time
limit. Messages of a back end are not repeated, because they may quote credentials.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from worker.base.files import make_folder, temporary
from worker.base.problems import refuse
from worker.base.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from worker.base.problems import ProblemError
    from worker.observability.counters import Counters

PIECE = 2**23  # bytes of a request, at most, because the time limit is per request
REST_SECONDS = 2.0  # after a failure requests fail at once for so long

log = logging.getLogger(__name__)


class Bucket:
    """Objects below a URL.

    Parameters
    ----------
    url
        Any fsspec URL whose back end is installed.
    seconds
        Time limit of a request of at most 8 MB.
    counts
        Counters of requests and bytes, or None.

    Raises
    ------
    SettingsError
        If the back end is unknown or not installed, or the URL has a password.

    """

    def __init__(self, url: str, *, seconds: float, counts: Counters | None = None) -> None:
        self._url = url
        self._seconds = seconds
        self._counts = counts
        self._system: tuple[int, Any, str] | None = None  # process id, file system, root
        self._rests_until = 0.0
        if urlsplit(url).password is not None:
            raise SettingsError(
                "GLLE_STORE_URL has a password: set it in the variables of the store's package instead."
            )
        try:
            system, _ = self._connect()
        except ImportError as error:
            remedy = "pip install 'glle-server[storage]' and the store's package, see docs/how-to/storage.md."
            raise SettingsError(f"GLLE_STORE_URL: {error}. {remedy}") from error
        except ValueError as error:
            raise SettingsError(f"GLLE_STORE_URL is no fsspec URL: {error}.") from error
        except OSError as error:
            reason = str(error).partition("\n")[0]
            raise SettingsError(f"GLLE_STORE_URL: its back end cannot start: {reason}") from error
        self.is_local = "file" in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol)

    def write(self, path: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Write a new object; raises ``store-unavailable``, ``storage-full``."""
        if self.is_local:
            self._request("write", lambda: self._write_file(self._file(path), parts), size)
        elif size <= PIECE:
            data = b"".join(parts)
            self._request("write", lambda: self._call("pipe_file", path, data))
        else:
            self._write_long(path, parts)
        self._count_bytes("written", size)

    def write_small(self, objects: Mapping[str, bytes]) -> None:
        """Write small objects, concurrently if the back end supports it."""

        def put() -> None:
            system, root = self._connect()
            system.pipe({f"{root}/{path}": data for path, data in objects.items()})

        self._request("write", put)
        self._count_bytes("written", sum(map(len, objects.values())))

    def read(self, path: str, start: int, stop: int) -> bytes | None:
        """Return the existing bytes of a range of an object, or None for a missing object."""
        data: bytes | None = self._request("read", lambda: self._call("cat_file", path, start=start, end=stop))
        self._count_bytes("read", len(data or b""))
        return data

    def read_several(self, requests: list[tuple[str, int]]) -> list[bytes | None]:
        """Return the first bytes of objects by (path, stop), concurrently if possible; None for a missing object."""

        def get() -> Any:
            system, root = self._connect()
            paths, stops = [f"{root}/{path}" for path, _ in requests], [stop for _, stop in requests]
            return system.cat_ranges(paths, [0] * len(paths), stops, on_error="return")

        replies = self._request("read", get)
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, FileNotFoundError):
                raise self._failed("read", reply)
        data = [None if isinstance(reply, Exception) else bytes(reply) for reply in replies]
        self._count_bytes("read", sum(len(item or b"") for item in data))
        return data

    def remove(self, path: str) -> None:
        """Remove an object, if it exists."""
        self._request("delete", lambda: self._call("rm_file", path))
        if self.is_local:
            with contextlib.suppress(OSError):  # the folder has other files
                self._file(path).parent.rmdir()

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of an object of `size` bytes, fewer if it is missing or shorter."""
        for start in range(0, size, PIECE):
            piece = self.read(path, start, min(start + PIECE, size))
            if not piece:
                return
            yield piece

    def paths(self, folder: str = "") -> list[str]:
        """Return the paths of all objects, or of those below a folder."""

        def listed() -> list[str]:
            system, root = self._connect()
            below = f"{root}/{folder}" if folder else root
            return [str(path).removeprefix(root).lstrip("/") for path in system.find(below)]

        return self._request("list", listed) or []

    def probe(self) -> None:
        """Raise ``store-unavailable`` unless the store answers."""
        self._request("read", lambda: self._call("cat_file", "probe"))

    def _connect(self) -> tuple[Any, str]:
        """Return file system and root of this process; a back end's threads do not survive a fork."""
        if self._system is None or self._system[0] != os.getpid():
            from fsspec.core import url_to_fs  # noqa: PLC0415 -- an extra

            system, root = url_to_fs(self._url, skip_instance_cache=True, use_listings_cache=False)
            self._system = (os.getpid(), system, str(root).rstrip("/"))
        return self._system[1:]

    def _call(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        system, root = self._connect()
        return getattr(system, method)(f"{root}/{path}", *arguments, **options)

    def _file(self, path: str) -> Path:
        return Path(self._connect()[1]) / path

    def _write_file(self, file: Path, parts: Iterable[bytes | memoryview]) -> None:
        make_folder(file.parent)
        with temporary(file.parent) as target:
            for part in parts:
                target.write(part)
            target.publish(file)

    def _write_long(self, path: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write in pieces, each within the time limit; the object appears with the last one."""
        file = self._request("write", lambda: self._call("open", path, "wb", block_size=PIECE))
        try:
            for piece in _pieces(parts):
                self._request("write", partial(file.write, piece))
            self._request("write", file.close)
        except BaseException:
            with contextlib.suppress(Exception):
                file.discard()
            raise

    def _request(self, name: str, call: Callable[[], Any], size: int = 0) -> Any:
        """Return the result of a call of `size` bytes, None for a missing object to read, delete or list."""
        if time.monotonic() < self._rests_until:
            raise _unavailable("it failed a moment ago")
        done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                done.put((call(), None))
            except BaseException as error:  # noqa: BLE001 -- the waiting thread raises or reports it
                done.put((None, error))

        threading.Thread(target=work, name="bucket", daemon=True).start()  # a hanging daemon does not block the exit
        try:
            result, error = done.get(timeout=self._seconds * max(1.0, size / PIECE))
        except queue.Empty:
            raise self._failed(name, TimeoutError()) from None
        if isinstance(error, FileNotFoundError) and name != "write":
            self._count(name, "missing")
            return None
        if error is not None:
            raise self._failed(name, error)
        self._count(name, "ok")
        return result

    def _failed(self, name: str, error: BaseException) -> ProblemError:
        self._count(name, "error")
        reason = f", {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        log.error("The object store failed to %s: %s%s", name, type(error).__name__, reason)
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "Delete posteriors that are no longer needed, run `glle store sweep`, or enlarge the store."
            return refuse("storage-full", 507, "There is no space left in the object store.", remedy)
        self._rests_until = time.monotonic() + REST_SECONDS
        return _unavailable(type(error).__name__)

    def _count(self, name: str, result: str) -> None:
        if self._counts is not None:
            self._counts.add("store_requests", name, result)

    def _count_bytes(self, direction: str, nbytes: int) -> None:
        if self._counts is not None and nbytes:
            self._counts.add("store_bytes", direction, by=nbytes)


def _unavailable(why: str) -> ProblemError:
    return refuse(
        "store-unavailable",
        503,
        f"The object store failed ({why}).",
        "Try again in some seconds; if it still fails, check the store behind GLLE_STORE_URL and its credentials.",
    )


def _pieces(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Cut parts into pieces."""
    for part in parts:
        view = memoryview(part)
        for begin in range(0, len(view), PIECE):
            yield view[begin : begin + PIECE]
