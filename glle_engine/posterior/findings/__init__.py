"""Findings of a fit: figures and notes on the data, and the trust in the embedding and in draws.

May import the posterior and its placement. Start with `diagnosis`.
"""
