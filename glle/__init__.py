"""The Python client: `Client`, and `AsyncClient` with the same methods to be awaited.

It imports nothing of the server, and needs httpx and numpy; pandas for frames, rich for progress bars.
"""

from glle.api import AsyncClient, Client
from glle.resources.datasets import AsyncDataset, Dataset
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
    "AsyncJob",
    "AsyncPosterior",
    "AuthError",
    "Client",
    "ConflictError",
    "Dataset",
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
]
