"""Linear algebra with the same bits on every processor: small matrices, sparse LU, distances, Procrustes alignment.

May import `base`. Start with `dense` (batches of small matrices) and `compiled` (how the loops are compiled).
"""

# How many draws the batched solver computes at once, one in each lane (entry) of its SIMD vectors. Eight draws, with
# AVX-512, were no faster, because their factors did not fit in the inner caches. They took twice the memory, and each
# batch waited for the slowest of eight.
LANES = 4
