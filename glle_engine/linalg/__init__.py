"""Linear algebra with the same bits on every processor.

Start with `glle_engine.linalg.dense`: batched operations on small matrices, in compiled code of fixed order. Of the
engine's packages it imports only `base`.
"""

# Draws per batch of the compiled solver. With AVX-512 eight draws were no faster, because their factors come from the
# outer caches. They took twice the memory, and each batch waited for the slowest of eight.
LANES = 4
