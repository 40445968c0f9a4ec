"""Generative locally linear embedding: embeddings with their uncertainty.

`fit` a posterior over reconstruction weights once, then draw any number of embeddings with `Posterior.draw`.

Source, with its short name: **GLLE** is Ghojogh, Ghodsi, Karray, Crowley, "Generative Locally Linear Embedding"
(arXiv 2104.01525). Equation numbers are those of the paper.
"""

from glle_engine import manifolds
from glle_engine.base.diagnostics import Diagnostics, Note
from glle_engine.base.errors import GlleError
from glle_engine.base.spec import FitSpec
from glle_engine.base.version import NUMBERS, __version__
from glle_engine.metrics import ranks
from glle_engine.posterior.draw import Draw, DrawKey
from glle_engine.posterior.fit import fit
from glle_engine.posterior.posterior import Posterior, load

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
