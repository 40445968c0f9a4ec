"""Embeddings with their uncertainty: the engine in this process, and the client of a service.

    import glle

    posterior = glle.fit(X)  # a posterior over embeddings of an (n, d) array
    glle.plot(posterior, labels=y)  # points whose neighbors change between draws are faint; glle.frame: a table
    glle.compare(X, ["pca", "isomap", "umap"])  # scores of other methods; glle.embed(X, "isomap") embeds by one
    glle.advise(X).n_neighbors  # the suggested number of neighbors
    print(glle.audit(X, method="umap").verdict)  # whether to believe a map, by any method or function

    with glle.Client("http://127.0.0.1:8000") as client:
        posterior = client.fit(X, labels=y)  # an array, a table, or the path of a file
        draws = posterior.draws(100)  # embeddings (100, n, 2)
        summary = posterior.summary()  # consensus, spread, stability

`glle.GLLE` and `glle.Embedding` are estimators of scikit-learn, `glle.datasets` samples manifolds, `glle.load` reads a
posterior. `glle.frame`, `glle.to_xarray` and `glle.widget` show results in other ways. They, `glle.Embedding`,
`AsyncClient`, the errors and the other classes of `glle.client` are importable from here; `dir(glle)` lists the rest.

A name is loaded at its first use: the client loads no engine, the engine no httpx. Of this package, only `library`
imports the engine. Read `library` and `client` first.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glle.client import *  # noqa: F403 # its __all__
    from glle.client import Client
    from glle.library import advise, audit, compare, datasets, embed, fit, load
    from glle_engine.base.errors import GlleError as GlleError
    from glle_engine.base.pictures.plotting import plot
    from glle_engine.base.pictures.points import frame as frame
    from glle_engine.base.pictures.points import to_xarray as to_xarray
    from glle_engine.base.pictures.widget import widget as widget
    from glle_engine.base.version import __version__ as __version__
    from glle_engine.estimator import GLLE
    from glle_engine.estimator import Embedding as Embedding

__all__ = ["GLLE", "Client", "advise", "audit", "compare", "datasets", "embed", "fit", "load", "plot"]

_PICTURES = "glle_engine.base.pictures"
# Module of each public name; all others are names of `glle.client`.
_MODULES = dict.fromkeys(__all__, "glle.library")
_MODULES |= {"GlleError": "glle_engine.base.errors", "__version__": "glle_engine.base.version"}
_MODULES |= {"Client": "glle.client", "plot": f"{_PICTURES}.plotting", "widget": f"{_PICTURES}.widget"}
_MODULES |= dict.fromkeys(("GLLE", "Embedding"), "glle_engine.estimator")
_MODULES |= dict.fromkeys(("frame", "to_xarray"), f"{_PICTURES}.points")
_OPTIONAL = {"GLLE": "sklearn", "Client": "httpx"}


if not TYPE_CHECKING:  # for type checkers an unknown name is an error

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use."""
        if name in _MODULES or not name.startswith("_"):
            module = import_module(_MODULES.get(name, "glle.client"))
            if name in _MODULES or name in module.__all__:
                globals()[name] = value = getattr(module, name)
                return value
        raise AttributeError(f"module 'glle' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names whose optional packages are installed, for `help` and completion."""
    return [name for name in __all__ if name not in _OPTIONAL or find_spec(_OPTIONAL[name])]
