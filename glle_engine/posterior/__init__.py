"""Fitted posteriors: fit, draws, summaries, new points, choice of parameters.

May import every package of the engine but `methods` and `reliability`. Start with `fit`, `posterior` and `sampler`.
"""
