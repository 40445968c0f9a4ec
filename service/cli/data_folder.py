"""The data folder of `glle up`: its lock, and the file with the addresses of the Redis servers that `glle up` runs.

At each start these embedded servers get random passwords and free ports. `glle up` writes the addresses to a file that
only the user of `glle up` can read, so that other commands find the servers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from service.cli.options import StartError, require_both_urls
from worker.base.files import FILE_MODE, make_folder, temporary
from worker.base.problems import ProblemError
from worker.operations.embedded_redis import cache_server, queue_server
from worker.storage.free_space import ADDRESSES
from worker.storage.mark import LOSSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.settings import Settings
    from worker.stores import Stores


@contextlib.contextmanager
def lock_data_folder(data: Path) -> Iterator[None]:
    """Lock the data folder while the context lasts, because two deployments would overwrite each other's files in it.

    Raises
    ------
    StartError
        If another process holds the lock.

    """
    make_folder(data)
    with os.fdopen(os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "Stop it, or choose another folder with --data-dir."
            raise StartError(f"Another `glle up` uses {data}. {remedy}") from None
        yield


@contextlib.contextmanager
def publish_addresses(data: Path, settings: Settings) -> Iterator[None]:
    """Keep the URLs of the two Redis servers, with passwords, in a file of the data folder while the context lasts.

    Other commands read this file to find the servers.
    """
    addresses = {"redis_url": settings.redis_url, "cache_url": settings.cache_url}
    with temporary(data) as file:  # other users cannot read it
        file.write(json.dumps(addresses).encode())
        file.publish(data / ADDRESSES)
    try:
        yield
    finally:
        (data / ADDRESSES).unlink(missing_ok=True)


@contextlib.contextmanager
def connect_stores(settings: Settings, *, is_new: bool = False, allows_loss: bool = False) -> Iterator[Stores]:
    """Connect a command to the records (in Redis) and files of a deployment, whether the deployment runs or not.

    If the settings name no Redis servers, the command uses the servers of a running `glle up`, or starts its own.

    Parameters
    ----------
    is_new
        Whether the data folder may be empty or missing, because the command may create a new service in it.
    allows_loss
        Whether to yield the stores even if records in Redis or stored files are lost.

    Raises
    ------
    StartError
        If the data folder does not exist, if only one of the URLs of the two Redis servers is set, if the addresses of
        the running servers cannot be read, if a server fails, or if records or files are lost
        (`worker.storage.mark.LOSSES`).
    SettingsError
        If a server refuses user or password.

    """
    from worker.connections.clients import require_login  # noqa: PLC0415 # the parent process of `glle up` does not need it
    from worker.stores import Stores  # noqa: PLC0415 # the parent process of `glle up` does not need it

    require_both_urls(settings)
    is_embedded = not settings.redis_url
    with contextlib.ExitStack() as stack:
        if not settings.redis_url:
            data = Path(settings.data_dir).resolve()
            if not is_new and not queue_server(settings).folder.is_dir():
                remedy = "Name the folder of the service with --data-dir, or set GLLE_REDIS_URL and GLLE_CACHE_URL."
                flaw = "has no data of a service" if data.is_dir() else "does not exist"
                raise StartError(f"The data folder {data} {flaw}. {remedy}")
            try:
                stack.enter_context(lock_data_folder(data))
            except StartError:
                settings = _running(data, settings)
            else:
                settings = stack.enter_context(_start_servers(settings))
        stores = stack.enter_context(contextlib.closing(Stores.connect(settings)))
        try:
            stores.client.ping()
            if not allows_loss:
                _require_no_loss(stores)
            yield stores
            if is_embedded:
                # This command may have created an API key. Note this in the mark, the file by which a later start
                # notices that Redis has lost its records.
                with contextlib.suppress(ProblemError):
                    stores.mark.renew()
        except redis.RedisError as error:
            away = " and ".join(require_login(settings)) or "GLLE_REDIS_URL or GLLE_CACHE_URL"
            detail = f"The server of {away} does not answer as it should: {str(error).rstrip('.')}."
            raise StartError(f"{detail} `glle doctor` checks it.") from error


def _require_no_loss(stores: Stores) -> None:
    """Raise `StartError` if records in Redis or stored files are lost (see worker/storage/mark.py).

    If Redis or the file store does not answer, nothing is raised here: the command fails later, when it uses them.
    """
    try:
        stores.mark.require_no_loss()
    except ProblemError as error:
        if error.problem.code in LOSSES:
            raise StartError(f"{error.problem.detail} {error.problem.remedy}") from None


def _running(data: Path, settings: Settings) -> Settings:
    try:
        addresses = json.loads((data / ADDRESSES).read_bytes())
        return replace(settings, redis_url=addresses["redis_url"], cache_url=addresses["cache_url"])
    except (OSError, ValueError, KeyError) as error:
        detail = f"{data} is in use, and the addresses of its servers cannot be read ({type(error).__name__})."
        remedy = "Run the command as the service's user. Try again if the service is starting or stopping."
        raise StartError(f"{detail} {remedy}") from error


@contextlib.contextmanager
def _start_servers(settings: Settings) -> Iterator[Settings]:
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
