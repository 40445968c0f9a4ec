"""Predicted cost of a fit and of draws: seconds and bytes, from the fill of the factors.

Start with `estimate`; `rates` predicts fill and operations, and has the measured constants.
"""
