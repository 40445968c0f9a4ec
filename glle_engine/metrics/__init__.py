"""Scores of embeddings: ranks, distances, residual variance of geodesic distances, GP-LVM likelihood.

May import `base`, `linalg` and `graph`. Start with `registry`, the list of all scores.
"""
