"""Fitted posteriors: fit, draws, summaries, new points, calibration, choice of parameters.

May import every package of the engine but `methods`. Start with `fit`, then `posterior` and `sampler`.
"""
