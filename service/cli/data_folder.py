"""The data folder of a deployment with embedded servers: who works on it, and how its servers are reached.

The servers have passwords that nobody is told, and take another free port at each start. The head of the tree writes
their addresses into the folder, readable by its owner alone, who may read the servers' own files there anyway.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.start_error import StartError
from worker.base.files import private_file, temporary
from worker.operations.embedded_redis import cache_server, queue_server
from worker.storage.free_space import ADDRESSES
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings


@contextlib.contextmanager
def held(data: Path) -> Iterator[None]:
    """Hold the data folder: two trees on one folder would write the same files.

    Raises
    ------
    StartError
        When somebody else holds it.

    """
    with private_file(data / "lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "Stop it, or choose another folder with --data-dir."
            raise StartError(f"Another `glle up`, backup or restore uses {data}. {remedy}") from None
        yield


@contextlib.contextmanager
def told(data: Path, settings: Settings) -> Iterator[None]:
    """Tell the owner of the folder where its servers are, as long as they run."""
    addresses = {"redis_url": settings.redis_url, "cache_url": settings.cache_url}
    with temporary(data) as file:  # readable by its owner alone
        file.write(json.dumps(addresses).encode())
        file.publish(data / ADDRESSES)
    try:
        yield
    finally:
        (data / ADDRESSES).unlink(missing_ok=True)


@contextlib.contextmanager
def reached(settings: Settings) -> Iterator[Stores]:
    """Yield the stores of a deployment, whether it runs or not.

    With URLs in the settings they are those. Without, they are those of the data folder's embedded servers: of the
    running ones, or, when nobody holds the folder, of servers that are started for the purpose and stopped afterwards.

    Raises
    ------
    StartError
        When only one server is named, or the folder is held by somebody whose servers cannot be reached.

    """
    if bool(settings.redis_url) != bool(settings.cache_url):
        raise StartError("Set both GLLE_REDIS_URL and GLLE_CACHE_URL, or neither for embedded servers.")
    with contextlib.ExitStack() as stack:
        if not settings.redis_url:
            data = Path(settings.data_dir).resolve()
            try:
                stack.enter_context(held(data))
            except StartError:
                settings = _running(data, settings)
            else:
                settings = stack.enter_context(_started(settings))
        yield stack.enter_context(contextlib.closing(Stores.connect(settings)))


def _running(data: Path, settings: Settings) -> Settings:
    try:
        addresses = json.loads((data / ADDRESSES).read_bytes())
        return replace(settings, redis_url=addresses["redis_url"], cache_url=addresses["cache_url"])
    except (OSError, ValueError, KeyError) as error:
        detail = f"{data} is in use, and where its servers are cannot be read ({type(error).__name__})."
        remedy = "Run the command as the service's user; if something there starts or stops just now, try again."
        raise StartError(f"{detail} {remedy}") from error


@contextlib.contextmanager
def _started(settings: Settings) -> Iterator[Settings]:
    servers = queue_server(settings), cache_server(settings)
    try:
        for server in servers:
            server.spawn()
        for server in servers:
            server.wait()
        yield replace(settings, redis_url=servers[0].url, cache_url=servers[1].url)
    finally:
        for server in servers:
            server.stop()
