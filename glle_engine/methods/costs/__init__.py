"""Expected seconds and bytes of an embedding: the law and its measured coefficients.

May import `base`. Read `law.py` first.
"""

from glle_engine.base.cost import Cost
from glle_engine.methods.costs.law import MARGIN, TABLE, estimate, evaluate, product, table

__all__ = ["MARGIN", "TABLE", "Cost", "estimate", "evaluate", "product", "table"]
