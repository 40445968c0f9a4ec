"""Reconstruction weights: LLE's weights, and their distributions in GLLE.

May import `base`, `linalg` and `graph`. Start with `lle` (Eq. 1 of LLE). Then read `gaussian` (the distribution from
which draws sample), `constrained` (the corrected posteriors) and `published` (the posteriors as published).
"""
