"""Several draws of one posterior at once, one per SIMD lane.

May import `base`, `linalg`, `weights` and the files of `eigen`. Start with `solver`, then `structure`,
`factorization`, `lanczos`.
"""
