"""The Python client: `Client`, and `AsyncClient` with the same methods as coroutines; `fit` fits without a service.

Imports nothing of the server, and of the engine only `fit`, at its first use. The client needs httpx and numpy; pandas
for frames, rich for progress bars. Read `client` first.
"""

from importlib import import_module
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
