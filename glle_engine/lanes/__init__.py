"""Several draws of one posterior at once, one a SIMD lane: needs numba, the extra ``fast``."""
