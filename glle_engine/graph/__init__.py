"""Neighbor graphs: exact and approximate search, its cost, adaptive sizes, connectivity and bridges.

May import `base` and `linalg`. Start with `search`, which chooses between `neighbors` (exact) and `hnsw` (approximate).
`search_cost` predicts the time of the exact search.
"""
