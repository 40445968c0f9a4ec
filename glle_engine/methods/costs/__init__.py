"""Expected seconds and bytes of an embedding: the law and its measured coefficients.

Imports nothing of the engine. Read `law.py` first.
"""

from glle_engine.methods.costs.law import MARGIN, TABLE, Cost, estimate, evaluate, product, table

__all__ = ["MARGIN", "TABLE", "Cost", "estimate", "evaluate", "product", "table"]
