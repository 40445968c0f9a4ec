"""Fitted posteriors: fit, draws, summaries, new points, choice of parameters.

May import every package of the engine but `reliability` and `methods`. Start with `fit`, then `posterior` and `sampler`.
"""
