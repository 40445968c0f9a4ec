"""Neighbor graphs: exact and approximate search, its cost, adaptive sizes, connectivity and bridges.

May import `base` and `linalg`. Start with `neighbors`, which searches exactly or approximately.
"""
