"""A deployment whose Redis servers, APIs and workers are started one by one, so that each can fail alone."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli import BLAS_VARIABLES
from tests.system.conftest import run_glle
from worker.operations.embedded_redis import EmbeddedRedis, cache_server, queue_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.conftest import Up
    from worker.base.settings import Settings

ONE_THREAD = dict.fromkeys(BLAS_VARIABLES, "1")


@dataclass
class Deployment:
    """Two Redis servers, a data folder, and the processes that use them.

    Parameters
    ----------
    settings
        Settings of the processes, with the URLs of the servers.
    stack
        Ends the processes when it is closed.
    numbers
        Numbers for the names of log files.

    """

    settings: Settings
    queue: EmbeddedRedis
    cache: EmbeddedRedis
    stack: ExitStack
    numbers: count[int] = field(default_factory=count)

    def start(self, *arguments: str) -> Up:
        """Start a `glle` command, such as ``serve``; return the running process."""
        log = Path(self.settings.data_dir).parent / f"{arguments[0]}-{next(self.numbers)}.log"
        environment = {**self.settings.to_env(), **ONE_THREAD, "GLLE_API_PROCESSES": "1"}
        return self.stack.enter_context(run_glle(log, *arguments, **environment))


@contextmanager
def run_servers(folder: Path, settings: Settings) -> Iterator[Deployment]:
    """Run the two Redis servers in a folder during the context; at the end, kill them and all started processes."""
    folder.mkdir(exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    of_servers = replace(settings, data_dir=str(folder))
    with ExitStack() as stack:
        servers = queue, cache = queue_server(of_servers), cache_server(of_servers)
        for server in servers:
            server.spawn()
            stack.callback(end_server, server)
        for server in servers:
            server.wait()
        settings = replace(settings, data_dir=str(folder / "data"), redis_url=queue.url, cache_url=cache.url)
        yield Deployment(settings, queue, cache, stack)


def end_server(server: EmbeddedRedis) -> None:
    """Kill the process of a server, even if it is suspended, and wait for its end."""
    if server.process is not None:
        server.process.kill()
        server.process.wait()
