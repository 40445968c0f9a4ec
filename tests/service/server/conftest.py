"""An API process in a thread."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx

from service.app import create_app
from service.cli.main import listen
from service.server.uvicorn_server import ApiServer
from tests.conftest import until
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def serving_process(stores: Stores, drain: float) -> Iterator[tuple[ApiServer, httpx.Client, threading.Thread]]:
    """Serve in a thread with separate stores, which close with it; yield the server, a client and the thread."""
    sock = listen("127.0.0.1", 0)
    own_stores = Stores.connect(replace(stores.settings, drain=drain))
    server = ApiServer(create_app(own_stores), own_stores.settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    thread.start()
    try:
        until(lambda: server.started)
        with httpx.Client(base_url=url, timeout=60) as client:
            yield server, client, thread
    finally:
        server.handle_exit(15, None)
        server.handle_exit(15, None)
        thread.join()
        own_stores.close()
