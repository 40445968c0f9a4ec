"""Expected seconds and bytes of an embedding: the law and its measured coefficients.

May import `glle_engine.methods.parameters`. Read `law.py` first.
"""

from glle_engine.methods.costs.law import MARGIN, TABLE, Cost, estimate, estimator, evaluate, product, table

__all__ = ["MARGIN", "TABLE", "Cost", "estimate", "estimator", "evaluate", "product", "table"]
