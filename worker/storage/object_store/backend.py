"""Read and write objects below a URL, in a folder, S3, Google or Azure, by the library obstore.

obstore repeats failed requests and limits their time. obstore does not sync files to the disk, so objects in a folder
are written by `worker.base.files`. Error messages of obstore are never shown, because they may quote credentials.

obstore works in threads of the process. A forked process does not have these threads, and its requests would wait
forever. A process that will fork may therefore construct a `Bucket`, but must not send a request.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import BaseError, GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url

from worker.base.files import make_folder, temporary
from worker.base.problems import refuse
from worker.base.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from obstore.store import ObjectStore as Store

    from worker.base.problems import ProblemError
    from worker.observability.counters import Counters

MAX_REQUEST_BYTES = 2**23  # one request transfers at most this many bytes, because each request has a time limit
REQUEST_SECONDS = 15.0  # time limit of a request
MAX_RETRIES = 3  # a failed request is repeated this many times, which together take a second or two
_MAX_CONCURRENT_REQUESTS = 2  # a long write sends this many requests at once
_MAX_WRITE_ATTEMPTS = 10  # attempts to write into a folder that other processes may remove while it is empty
_SCHEMES = ("file", "s3", "gs", "az", "abfs", "abfss")
_LOCAL = "file://"
# Addresses, in error messages of obstore, at which a machine in a cloud asks for the credentials of its role.
_METADATA = re.compile(r"169\.254\.|metadata\.google")
_OS_ERROR = re.compile(r"os error (\d+)")
_STATUS = re.compile(r"status code: (\d{3})")
_CHECK_FOLDER = "Check the folder of GLLE_STORE_URL or GLLE_DATA_DIR, its disk, and the rights of the service's user."
_CHECK_CREDENTIALS = (
    "Check the variables of the store's credentials, and their rights: put, get, delete and list below the prefix "
    "(docs/how-to/storage.md)."
)
_CHECK_NETWORK = (
    "Try again in some seconds; if it still fails, check the network and the address of the store: GLLE_STORE_URL, and "
    "AWS_ENDPOINT_URL if it is set."
)

T = TypeVar("T")

log = logging.getLogger(__name__)


class Bucket:
    """Reads and writes the objects below a URL; the objects are named by paths relative to the URL.

    Parameters
    ----------
    url
        ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``.
    seconds
        Time limit of each request, which transfers at most `MAX_REQUEST_BYTES` bytes; no retry starts after this time.
    counts
        Counters of requests and bytes, or None.
    retries
        Repetitions of a failed request, with growing pauses.

    Raises
    ------
    SettingsError
        If the URL has an unknown scheme or a password, or an environment variable that the back end needs is missing.

    """

    _user: ClassVar[int] = 0  # id of the process that has sent the first request; 0: none yet

    def __init__(
        self, url: str, *, seconds: float = REQUEST_SECONDS, counts: Counters | None = None, retries: int = MAX_RETRIES
    ) -> None:
        self._counts = counts
        self._url = url
        self._root = Path(url.removeprefix(_LOCAL))  # folder of a local store
        self.is_local = url.startswith(_LOCAL)
        self._store: Store | None = None if self.is_local else _open(url, timedelta(seconds=seconds), retries)
        if self.is_local and not self._root.is_absolute():
            raise SettingsError(f"GLLE_STORE_URL={url} names a relative folder. Use file:/// and an absolute path.")

    def local_path(self, path: str) -> Path:
        """Return the path of the file with an object; the store must be a folder."""
        return self._root / path

    def address(self, path: str) -> str:
        """Return the path or URL of an object, for messages."""
        return str(self.local_path(path)) if self.is_local else f"{self._url.rstrip('/')}/{path}"

    def write(self, path: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Write or replace an object of `size` bytes atomically.

        Raises `ProblemError` (``store-unavailable``, ``storage-full``).
        """
        is_long = size > MAX_REQUEST_BYTES

        def put(store: Store) -> None:
            if self.is_local:
                _write_file(self.local_path(path), parts)
            else:
                store.put(
                    path,
                    iter(parts),
                    use_multipart=is_long,
                    chunk_size=MAX_REQUEST_BYTES,
                    max_concurrency=_MAX_CONCURRENT_REQUESTS,
                )

        self._request("write", put)
        self._count("store_bytes", "written", increment=size)

    def read(self, path: str, start: int, stop: int) -> bytes | None:
        """Return the bytes `start`, ..., `stop` - 1 of an object, as far as they exist; None if there is no object."""

        def get(store: Store) -> bytes:
            try:
                return bytes(store.get_range(path, start=start, end=stop))
            except GenericError as error:  # the range may begin beyond the end of the object
                if "range" in str(error).lower() and store.head(path)["size"] <= start:
                    return b""
                raise

        data = self._request("read", get)
        self._count("store_bytes", "read", increment=len(data or b""))
        return data

    def remove(self, path: str) -> None:
        """Remove an object, if it exists."""
        self._request("delete", lambda store: store.delete(path))

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yield an object of `size` bytes in pieces of at most `MAX_REQUEST_BYTES`; stop early if bytes are missing."""
        for start in range(0, size, MAX_REQUEST_BYTES):
            piece = self.read(path, start, min(start + MAX_REQUEST_BYTES, size))
            if not piece:
                return
            yield piece

    def modification_times(self, folder: str = "") -> dict[str, float]:
        """List the objects and temporary files in a folder: a mapping from path to last write, seconds since 1970."""

        def find(store: Store) -> dict[str, float]:
            items = (item for page in store.list(folder or None) for item in page)
            return {item["path"]: item["last_modified"].timestamp() for item in items}

        return self._request("list", find) or {}

    def contains(self, folder: str, *, except_in: str) -> bool:
        """Return whether a folder has an object other than those whose path begins with `except_in`."""

        def find(store: Store) -> bool:
            return any(not item["path"].startswith(except_in) for page in store.list(folder) for item in page)

        return bool(self._request("list", find))

    def probe(self) -> None:
        """Raise `ProblemError` (``store-unavailable``) unless the store answers."""
        self.modification_times("probe")  # also fails if the bucket does not exist

    def _connect(self) -> Store:
        """Return obstore's store; raises `RuntimeError` in a process whose parent sent requests before the fork."""
        Bucket._user = Bucket._user or os.getpid()
        if Bucket._user != os.getpid():
            raise RuntimeError("The parent process used the object store before the fork; only children may use it.")
        if self._store is None:
            self._store = LocalStore(self._root, automatic_cleanup=True)  # raises if the folder does not exist
        return self._store

    def _request(self, name: str, call: Callable[[Store], T]) -> T | None:
        """Send a request to the store by `call`, and return the result of `call`; count the request for the metrics.

        Return None if the object to read or delete, or the folder to list, is missing. Raises `ProblemError`
        (``store-unavailable``, ``storage-full``). Only a write creates the folder of a local store.
        """
        try:
            if self.is_local and name == "write":
                make_folder(self._root)
            elif self.is_local and not self._root.is_dir():
                raise FileNotFoundError(self._root)
            result = call(self._connect())
        except (OSError, BaseError) as error:
            if isinstance(error, FileNotFoundError) and name != "write":
                self._count("store_requests", name, "missing")
                return None
            raise self._failure(name, error) from None
        self._count("store_requests", name, "ok")
        return result

    def _failure(self, name: str, error: Exception) -> ProblemError:
        self._count("store_requests", name, "error")
        reason = f", {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        log.error("The object store failed to %s: %s%s", name, type(error).__name__, reason)
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "Delete data sets, posteriors and results of jobs that are no longer needed, or enlarge the store."
            return refuse("storage-full", 507, "There is no space left in the object store.", remedy)
        return _unavailable(*(_explain_folder(error) if self.is_local else _explain(error)))

    def _count(self, *series: str, increment: int = 1) -> None:
        if self._counts is not None and increment:
            self._counts.add(*series, increment=increment)


def _write_file(file: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file durably; if another process removes the empty folder meanwhile, create the folder again."""
    with ExitStack() as stack:
        for attempts_left in reversed(range(_MAX_WRITE_ATTEMPTS)):
            try:
                make_folder(file.parent)
                target = stack.enter_context(temporary(file.parent, keep_reserve=True))
                break
            except FileNotFoundError:
                if not attempts_left:
                    raise
        for part in parts:
            target.write(part)
        target.publish(file)


def _open(url: str, seconds: timedelta, retries: int) -> Store:
    """Return obstore's store for a URL, with credentials from environment variables; raises `SettingsError`."""
    parts = urlsplit(url)
    if parts.password is not None:
        raise SettingsError(
            "GLLE_STORE_URL has a password, which logs and process lists may show. Set the environment variables of "
            "the store instead, such as AWS_SECRET_ACCESS_KEY."
        )
    if parts.scheme not in _SCHEMES:
        raise SettingsError(
            f"GLLE_STORE_URL has {f'the unknown scheme {parts.scheme!r}' if parts.scheme else 'no scheme'}. Use "
            "file:///folder, s3://bucket, gs://bucket or az://container."
        )
    try:
        return from_url(
            url,
            client_options={
                "timeout": seconds,
                "allow_http": True,
            },  # http is used only if the environment variable with the endpoint's URL begins with http:
            retry_config={"max_retries": retries, "retry_timeout": seconds},
        )
    except (ValueError, BaseError) as error:
        reason = str(error).partition("\n")[0].replace(url, "the URL").rstrip(".")
        raise SettingsError(
            f"The store of GLLE_STORE_URL cannot be opened ({reason}). docs/how-to/storage.md has examples."
        ) from None


def _explain(error: Exception) -> tuple[str, str]:
    """Return why a request to a remote store failed, and a remedy.

    The message of the error is not quoted, because it may contain credentials.
    """
    message = str(error)
    if _METADATA.search(message):
        return "no credentials were found, neither in its variables nor as a role of this machine", _CHECK_CREDENTIALS
    status = _STATUS.search(message)
    if isinstance(error, UnauthenticatedError | PermissionDeniedError) or (status and status[1] in {"401", "403"}):
        return "it refuses the credentials, or their rights do not suffice", _CHECK_CREDENTIALS
    if isinstance(error, FileNotFoundError) or (status and status[1] == "404"):
        return "its bucket or container does not exist", "Create it, or correct GLLE_STORE_URL."
    if "redirect" in message:
        return "it redirects: the bucket is in another region", "Correct the region in the variables of the store."
    if status:
        return f"it answers with status {status[1]}", "Try again in some seconds; if it still fails, check the store."
    return "it cannot be reached over the network, or answers too late", _CHECK_NETWORK


def _explain_folder(error: Exception) -> tuple[str, str]:
    """Return why a request to a store in a folder failed, such as ``Permission denied``, and a remedy."""
    number = _OS_ERROR.search(str(error))
    code = error.errno if isinstance(error, OSError) and error.errno else int(number[1]) if number else errno.EIO
    return os.strerror(code), _CHECK_FOLDER


def _unavailable(why: str, remedy: str) -> ProblemError:
    return refuse("store-unavailable", 503, f"The object store failed: {why}.", remedy)
