"""Neighbor graphs: exact and approximate search, adaptive sizes, connectivity and bridges.

May import `base` and `linalg`. Start with `search`, which chooses between `neighbors` (exact) and `hnsw` (approximate).
"""
