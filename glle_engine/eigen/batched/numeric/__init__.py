"""Numeric LU factors and triangular solves of several matrices at once, one per lane.

May import `symbolic` and `linalg`. Start with `factorization`.
"""
