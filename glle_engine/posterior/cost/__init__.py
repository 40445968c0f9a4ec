"""Cost of a fit and of draws before the work: seconds and bytes from the fill of the factors.

Start with `estimate`; `drawing` has the cost of the draws of a fitted posterior. `factorization` predicts fill and
operations; `rates` has the measured constants.
"""
