"""Analyses: the computations that a job can run other than fits and draws, each with a class for its parameters.

May import every package of `worker` above `jobs`, and `jobs`. Start with `base`, then `registry`.
"""
