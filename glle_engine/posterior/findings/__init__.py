"""Findings of a fit: figures and notes on the data, and the choice between two laws of the noise.

May import the posterior and its placement. Start with `diagnosis`.
"""
