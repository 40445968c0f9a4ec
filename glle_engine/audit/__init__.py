"""Audit of an embedding: which parts of the embedding the data support.

May import every package of the engine but `estimator`. Start with `audit`. `chance` compares the data and their
neighborhoods with data without structure, `sources` says how to make an embedding again, and `result` has the verdict.
"""
