"""Cost of a fit and of draws before the work: seconds and bytes from the fill of the factors.

Start with `estimate`; `drawing` has the cost of the draws of a fitted posterior. `factorization` predicts fill and
operations, `search` the neighbor search; `rates` has the measured constants.
"""
