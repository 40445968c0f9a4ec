"""Variants of LLE: choice of k and ridge, outliers, labels, pruned and weighted graphs, points added later.

May import the files of `methods`, `spectral` and what `methods` may import. `rewired_lle` has the methods that choose
neighbors by other distances.
"""
