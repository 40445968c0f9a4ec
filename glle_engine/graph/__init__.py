"""Neighbor graphs: exact and approximate search, radii, adaptive neighborhoods, connectivity and bridges.

May import `base` and `linalg`. Start with `neighbors`, which searches exactly or approximately.
"""
