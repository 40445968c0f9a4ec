"""Linear algebra whose bits do not depend on the processor.

`glle_engine.linalg.dense` holds the batched operations on small matrices, in compiled code of fixed order if numba
is installed (the extra ``fast``) and by numpy's LAPACK if not; read it first. Imports nothing else of the engine.
"""

# Draws per batch of the compiled solver. With AVX-512 eight were no faster (the factors come from the outer caches either
# way), took twice the memory, and waited for the slowest of eight.
LANES = 4
