"""The Python client: `Client`, and `AsyncClient` with the same methods to be awaited.

It imports nothing of the server, and needs httpx and numpy; pandas for frames, rich for progress bars.
"""

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
from service.client.api import AsyncClient, Client
from service.client.datasets import AsyncDataset, Dataset
from service.client.jobs import AsyncJob, Job
from service.client.posteriors import AsyncPosterior, Posterior
from service.client.results import Result

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
