"""Embeddings with their uncertainty: the engine in this process, and the client of a service.

    import glle

    posterior = glle.fit(X)  # a posterior over embeddings of an (n, d) array
    glle.plot(posterior, labels=y)  # points whose neighbors change between draws are faint
    print(glle.compare(X))  # compares maps by several methods, and says which of them to show
    print(glle.audit(X, method="umap").verdict)  # says whether to believe a map by any method or function

    with glle.Client("http://127.0.0.1:8000") as client:
        posterior = client.fit(X, labels=y)  # an array, a table, or the path of a file
        draws = posterior.draws(100)  # embeddings (100, n, 2)
        summary = posterior.summary()  # consensus, spread, stability

`glle.embed(X, "isomap")` embeds by one method. `glle.GLLE` and `glle.Embedding` are estimators of scikit-learn,
`glle.datasets` samples manifolds, `glle.load` reads a posterior. `glle.frame` makes a table of a result;
`glle.to_xarray` and `glle.widget` show it in other ways. `dir(glle)` lists all public names, with `AsyncClient`, the
errors and the other classes of `glle.client`.

A name is imported at its first use, so that the client works without the numerical engine, and the engine without
httpx. `library`, `comparison`, `arguments` and `reading` import the whole engine; the other modules import only its
`base` and `tables`. Read `library` and `client` first.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glle.client import (
        AsyncClient,
        AsyncDataset,
        AsyncEmbedding,
        AsyncJob,
        AsyncPosterior,
        AuthError,
        Client,
        ConflictError,
        Dataset,
        GlleServiceError,
        InvalidRequestError,
        Job,
        JobTimeoutError,
        NotFoundError,
        Posterior,
        RateLimitedError,
        Result,
        Retries,
        UnavailableError,
    )
    from glle.library import audit, compare, datasets, embed, fit, load
    from glle_engine.base.errors import GlleError
    from glle_engine.base.pictures.plotting import plot
    from glle_engine.base.pictures.points import frame, to_xarray
    from glle_engine.base.pictures.widget import widget
    from glle_engine.base.version import __version__ as __version__
    from glle_engine.estimator import GLLE, Embedding

__all__ = [
    "GLLE",
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
    "GlleError",
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
    "audit",
    "compare",
    "datasets",
    "embed",
    "fit",
    "frame",
    "load",
    "plot",
    "to_xarray",
    "widget",
]

_PICTURES = "glle_engine.base.pictures"
# The module that defines each public name.
_MODULES = dict.fromkeys(__all__, "glle.client")
_MODULES |= dict.fromkeys(("audit", "compare", "datasets", "embed", "fit", "load"), "glle.library")
_MODULES |= dict.fromkeys(("GLLE", "Embedding"), "glle_engine.estimator")
_MODULES |= {"GlleError": "glle_engine.base.errors", "__version__": "glle_engine.base.version"}
_MODULES |= {"plot": f"{_PICTURES}.plotting", "widget": f"{_PICTURES}.widget"}
_MODULES |= dict.fromkeys(("frame", "to_xarray"), f"{_PICTURES}.points")
# Modules that need an optional package: the package, and the extra of glle that installs it.
_OPTIONAL = {"glle_engine.estimator": ("sklearn", "sklearn"), "glle.client": ("httpx", "client")}


if not TYPE_CHECKING:  # type checkers should report unknown names

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use."""
        if name in _MODULES:
            package, extra = _OPTIONAL.get(_MODULES[name], ("", ""))
            if package and find_spec(package) is None:
                raise ImportError(f"glle.{name} needs {package}: pip install 'glle[{extra}]'.")
            globals()[name] = value = getattr(import_module(_MODULES[name]), name)
            return value
        raise AttributeError(f"module 'glle' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names whose optional packages are installed, for `help` and completion."""
    absent = [module for module, (package, _) in _OPTIONAL.items() if not find_spec(package)]
    return [name for name in __all__ if _MODULES[name] not in absent]
