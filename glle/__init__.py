"""The Python client: `Client`, and `AsyncClient` with the same methods as coroutines; `fit` fits without a service.

    from glle import Client

    with Client("http://127.0.0.1:8000") as client:
        posterior = client.fit(X, labels=y, n_neighbors=10)  # an array, a table, or the path of a file
        draws = posterior.draws(100)  # embeddings (100, n, 2)
        summary = posterior.summary()  # consensus, spread, stability

    from glle import fit

    draw = fit(X, n_neighbors=10).draw(0)  # without a service

`help(Client.fit)` lists the parameters, and `help(Client)` all methods.

Imports nothing of the server, and of the engine only `fit`, at its first use. The client needs httpx and numpy; pandas
for frames, pyarrow for tables of polars and others, rich for progress bars. Read `client` first.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glle.client import AsyncClient, Client
    from glle.resources.datasets import AsyncDataset, Dataset
    from glle.resources.embeddings import AsyncEmbedding, Embedding
    from glle.resources.jobs import AsyncJob, Job
    from glle.resources.posteriors import AsyncPosterior, Posterior
    from glle.resources.results import Result
    from glle.transport.errors import (
        AuthError,
        ConflictError,
        GlleServiceError,
        InvalidRequestError,
        JobTimeoutError,
        NotFoundError,
        RateLimitedError,
        UnavailableError,
    )
    from glle.transport.retries import Retries

__all__ = [
    "AsyncClient",
    "AsyncDataset",
    "AsyncEmbedding",
    "AsyncJob",
    "AsyncPosterior",
    "AuthError",
    "Client",
    "ConflictError",
    "Dataset",
    "Embedding",
    "GlleServiceError",
    "InvalidRequestError",
    "Job",
    "JobTimeoutError",
    "NotFoundError",
    "Posterior",
    "RateLimitedError",
    "Result",
    "Retries",
    "UnavailableError",
    "fit",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: `glle worker` pins BLAS threads before numpy is imported."""
    if name in __all__:
        modules = ("glle_engine",) if name == "fit" else ("glle.client", "glle.transport.errors")
        for module in modules:
            if hasattr(import_module(module), name):
                return getattr(import_module(module), name)
    raise AttributeError(f"module 'glle' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, so that `help(glle)` and completion show them; without httpx, those of the engine."""
    return __all__ if find_spec("httpx") else ["fit"]
