"""Reconstruction weights: LLE's weights, and the distributions that GLLE gives them.

May import `base`, `linalg` and `graph`. Start with `lle` (Eq. 1 of LLE), then `gaussian` (the distribution that draws
sample), `constrained` (the corrected posteriors) and `published` (the posteriors as published).
"""
