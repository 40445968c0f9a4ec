"""Fit a posterior over LLE's reconstruction weights, draw embeddings from it, summarize draws, and place new points.

May import every package of the engine but `methods` and `reliability`. Start with `fit`, `posterior` and `sampler`.
"""
