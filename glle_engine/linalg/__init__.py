"""Linear algebra whose bits do not depend on the processor.

`glle_engine.linalg.dense` holds the batched operations on small matrices, in compiled code of fixed order if numba
is installed (the extra ``fast``) and by numpy's LAPACK if not; read it first. Imports nothing else of the engine.
"""
