"""Symbolic analysis of one kNN pattern, shared by every factorization on it.

May import `linalg`. Start with `structure`.
"""
