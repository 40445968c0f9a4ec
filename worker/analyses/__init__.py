"""Analyses: the computations that a job can request beside fits and draws, one value type each.

May import every package of `worker` above `jobs`, and `jobs`. Start with `base`, then `registry`.
"""
