"""Generative locally linear embedding: embeddings with their uncertainty.

`fit` a posterior over reconstruction weights once, then draw any number of embeddings with `Posterior.draw`.

Source, with its short name: **GLLE** is Ghojogh, Ghodsi, Karray, Crowley, "Generative Locally Linear Embedding"
(arXiv 2104.01525). Equation numbers are the paper's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glle_engine.base.version import NUMBERS, __version__

if TYPE_CHECKING:
    from glle_engine import manifolds
    from glle_engine.base.errors import GlleError
    from glle_engine.base.results import Diagnostics
    from glle_engine.base.spec import FitSpec
    from glle_engine.base.texts import Note
    from glle_engine.metrics import ranks
    from glle_engine.posterior.fit import fit
    from glle_engine.posterior.posterior import Posterior, load
    from glle_engine.posterior.sampler import Draw, DrawKey

__all__ = [
    "NUMBERS",
    "Diagnostics",
    "Draw",
    "DrawKey",
    "FitSpec",
    "GlleError",
    "Note",
    "Posterior",
    "__version__",
    "fit",
    "load",
    "manifolds",
    "ranks",
]

# The module of each public name. It is loaded when the name is first used, so that a process that only starts other
# processes does not import scipy.
_MODULES = {
    "Diagnostics": "base.results",
    "Draw": "posterior.sampler",
    "DrawKey": "posterior.sampler",
    "FitSpec": "base.spec",
    "GlleError": "base.errors",
    "Note": "base.texts",
    "Posterior": "posterior.posterior",
    "fit": "posterior.fit",
    "load": "posterior.posterior",
    "manifolds": "manifolds",
    "ranks": "metrics.ranks",
}


def __getattr__(name: str) -> Any:
    """Return the object with a public name, after loading its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    globals()[name] = value = getattr(module, name, module)  # `manifolds` and `ranks` are modules
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
