"""The place behind an fsspec URL: bytes by name. Each request ends within a time, and each failure is one problem.

fsspec's back ends differ in what they raise and in how long they wait. Here a request is made by a thread of its own
that is waited for so long and no longer; what a back end says is not repeated, because it may quote credentials.
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

PIECE = 2**23  # bytes of a request: a limit of time means something when no request is larger
REST_SECONDS = 2.0  # after a failure, before the store is asked again: meanwhile nobody waits for it

log = logging.getLogger(__name__)


class Bucket:
    """The objects below a URL.

    Parameters
    ----------
    url
        Any that fsspec knows; its back end's package must be there.
    seconds
        How long a request of at most 8 MB may take.
    counts
        Where requests and bytes are counted; None: nowhere.

    Raises
    ------
    SettingsError
        When there is no such back end, its package is missing, or the URL has a password.

    """

    def __init__(self, url: str, *, seconds: float, counts: Counters | None = None) -> None:
        self._url = url
        self._seconds = seconds
        self._counts = counts
        self._made: tuple[int, Any, str] | None = None
        self._rests_until = 0.0
        if urlsplit(url).password is not None:
            raise SettingsError("GLLE_STORE_URL has a password: give it by the variables of the store's own package.")
        try:
            system, _ = self._there()
        except ImportError as error:
            remedy = "pip install 'glle-server[storage]' and, except for files, the store's package: see docs/how-to/storage.md."
            raise SettingsError(f"GLLE_STORE_URL: {error}. {remedy}") from error
        except ValueError as error:
            raise SettingsError(f"GLLE_STORE_URL is no URL that fsspec knows: {error}.") from error
        except OSError as error:
            told = str(error).partition("\n")[0]
            raise SettingsError(f"GLLE_STORE_URL: its back end cannot begin: {told}") from error
        self.is_local = "file" in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol)

    def write(self, path: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Write an object that is not there yet; raises ``store-unavailable``, ``storage-full``."""
        if self.is_local:
            self._ask("write", lambda: self._write_file(self._file(path), parts))
        elif size <= PIECE:
            whole = b"".join(parts)
            self._ask("write", lambda: self._call("pipe_file", path, whole))
        else:
            self._write_long(path, parts)
        self._count_bytes("written", size)

    def write_small(self, objects: Mapping[str, bytes]) -> None:
        """Write small objects together: at once, where the back end can."""

        def put() -> None:
            system, root = self._there()
            system.pipe({f"{root}/{path}": data for path, data in objects.items()})

        self._ask("write", put)
        self._count_bytes("written", sum(map(len, objects.values())))

    def read(self, path: str, start: int, stop: int) -> bytes | None:
        """Return bytes of an object, as many as there are, or None when it is not there."""
        found: bytes | None = self._ask("read", lambda: self._call("cat_file", path, start=start, end=stop))
        self._count_bytes("read", len(found or b""))
        return found

    def read_several(self, wanted: list[tuple[str, int]]) -> list[bytes | None]:
        """Return the first bytes of objects, at once where the back end can; None for those that are not there."""

        def get() -> Any:
            system, root = self._there()
            paths, stops = [f"{root}/{path}" for path, _ in wanted], [stop for _, stop in wanted]
            return system.cat_ranges(paths, [0] * len(paths), stops, on_error="return")

        found = self._ask("read", get)
        for error in found:
            if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
                raise self._failed("read", error)
        read = [None if isinstance(one, Exception) else bytes(one) for one in found]
        self._count_bytes("read", sum(len(one or b"") for one in read))
        return read

    def remove(self, path: str) -> None:
        """Remove an object, if it is there."""
        self._ask("delete", lambda: self._call("rm_file", path))
        if self.is_local:
            with contextlib.suppress(OSError):  # others are in the folder
                self._file(path).parent.rmdir()

    def paths(self) -> list[str]:
        """Return the paths of all objects."""

        def listed() -> list[str]:
            system, root = self._there()
            return [str(path).removeprefix(root).lstrip("/") for path in system.find(root)]

        return self._ask("list", listed) or []

    def probe(self) -> None:
        """Raise ``store-unavailable`` unless it answers; what is asked for need not be there."""
        self._ask("read", lambda: self._call("cat_file", "probe"))

    def _there(self) -> tuple[Any, str]:
        """Return the file system and the root of this process: a back end's threads do not live through a fork."""
        if self._made is None or self._made[0] != os.getpid():
            from fsspec.core import url_to_fs  # noqa: PLC0415 -- an extra

            system, root = url_to_fs(self._url, skip_instance_cache=True, use_listings_cache=False)
            self._made = (os.getpid(), system, str(root).rstrip("/"))
        return self._made[1], self._made[2]

    def _call(self, method: str, path: str, *given: Any, **named: Any) -> Any:
        system, root = self._there()
        return getattr(system, method)(f"{root}/{path}", *given, **named)

    def _file(self, path: str) -> Path:
        return Path(self._there()[1]) / path

    def _write_file(self, file: Path, parts: Iterable[bytes | memoryview]) -> None:
        make_folder(file.parent)
        with temporary(file.parent) as target:
            for part in parts:
                target.write(part)
            target.publish(file)

    def _write_long(self, path: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write in pieces, each within its time; an object store has nothing before the last one is there."""
        file = self._ask("write", lambda: self._call("open", path, "wb", block_size=PIECE))
        try:
            for piece in _pieces(parts):
                self._ask("write", partial(file.write, piece))
            self._ask("write", file.close)
        except BaseException:
            with contextlib.suppress(Exception):
                file.discard()
            raise

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """Return what a call returns, None when it finds no object."""
        if time.monotonic() < self._rests_until:
            raise _unavailable("it failed a moment ago")
        done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                done.put((call(), None))
            except BaseException as error:  # noqa: BLE001 -- it is raised, or told, by whoever waits
                done.put((None, error))

        threading.Thread(target=work, name="bucket", daemon=True).start()  # a daemon: one that hangs ends with us
        try:
            found, error = done.get(timeout=self._seconds)
        except queue.Empty:
            raise self._failed(what, TimeoutError()) from None
        if isinstance(error, FileNotFoundError):
            self._count(what, "missing")
            return None
        if error is not None:
            raise self._failed(what, error)
        self._count(what, "ok")
        return found

    def _failed(self, what: str, error: BaseException) -> ProblemError:
        self._count(what, "error")
        told = f"{type(error).__name__}{f', {error.strerror}' if isinstance(error, OSError) and error.strerror else ''}"
        log.error("The object store failed to %s: %s", what, told)
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "Delete posteriors that are no longer needed, run `glle store sweep`, or enlarge the store."
            return refuse("storage-full", 507, "There is no space left in the object store.", remedy)
        self._rests_until = time.monotonic() + REST_SECONDS
        return _unavailable(type(error).__name__)

    def _count(self, what: str, result: str) -> None:
        if self._counts is not None:
            self._counts.add("store_requests", what, result)

    def _count_bytes(self, direction: str, nbytes: int) -> None:
        if self._counts is not None and nbytes:
            self._counts.add("store_bytes", direction, by=nbytes)


def _unavailable(why: str) -> ProblemError:
    return refuse(
        "store-unavailable",
        503,
        f"The object store does not answer as it should ({why}).",
        "Try again in some seconds; if it stays, look at the store behind GLLE_STORE_URL and at its credentials.",
    )


def _pieces(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Cut parts so that none is longer than a piece."""
    for part in parts:
        view = memoryview(part)
        for begin in range(0, len(view), PIECE):
            yield view[begin : begin + PIECE]
