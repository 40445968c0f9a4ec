"""Solve several draws of one posterior at once, by SIMD vectors that hold one number of each draw.

May import `base`, `linalg`, `weights` and the files of `eigen`. Start with `solver`, then `structure`,
`factorization`, `lanczos`.
"""
