"""Audit of an embedding: which of its statements the data support.

May import every package of the engine but `estimator`. Start with `audit`. `chance` compares data and
neighborhoods with data without structure, `sources` makes an embedding again, and `result` has the verdict.
"""
