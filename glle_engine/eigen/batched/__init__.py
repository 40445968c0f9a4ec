"""Several draws of one posterior at once, one a SIMD lane: needs numba, the extra ``fast``."""

# Four, whatever the machine has: with AVX-512 eight were no faster (the factors come from the outer caches either way),
# took twice the memory, and waited for the slowest of eight.
LANES = 4
