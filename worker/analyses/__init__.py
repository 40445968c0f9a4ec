"""Analyses: what a job can compute other than fits and draws. Each analysis is a class of its request's parameters.

May import every package of `worker` above `jobs`, and `jobs`. Start with `base`, then `registry`.
"""
