"""Audit of an embedding: which of its statements the data support.

May import every package of the engine but `estimator`. Start with `audit`. `relations` finds structure in the data,
`chance` compares neighborhoods with those of data without it, `agreement` compares the pictures of separate halves of
the data, and `sources` makes an embedding again.
"""
