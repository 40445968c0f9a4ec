"""Linear algebra with the same bits on every processor: small matrices, sparse LU, distances, Procrustes alignment.

May import `base`. Start with `dense` (batches of small matrices) and `compiled` (how the loops are compiled).
"""

# How many draws the batched solver computes at once, each in one lane of its SIMD vectors. With AVX-512 eight draws
# were no faster, because their factors did not fit in the inner caches. They took twice the memory, and each batch
# waited for the slowest of eight.
LANES = 4
