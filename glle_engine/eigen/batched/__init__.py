"""Solve several draws of one posterior at once: a SIMD vector has one number of each draw, and its entries are lanes.

May import `base`, `linalg`, `weights` and the files of `eigen`. Start with `solver`, then `structure`,
`factorization`, `lanczos`.
"""
