"""All embedding methods behind one interface, `Method`: a name, typed parameters, `embed`, and an estimate of memory.

>>> from glle_engine import manifolds
>>> from glle_engine.methods import method
>>> pca = method("pca")
>>> pca.embed(manifolds.make("s_curve", 500).X, pca.spec(n_components=2)).Y.shape
(500, 2)
"""

from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.parameters import MethodSpec
from glle_engine.methods.registry import METHODS, method

__all__ = ["METHODS", "Embedding", "Method", "MethodSpec", "method"]
