"""Reconstruction weights of points on their neighbors: LLE's weights, and their distributions in GLLE.

May import `base`, `linalg` and `graph`. Start with `lle`, which computes the weights of LLE. Then read `gaussian` (the
distribution from which weights are drawn), `constrained` (the posteriors whose weights sum to one) and `published` (the
posteriors as published).
"""
