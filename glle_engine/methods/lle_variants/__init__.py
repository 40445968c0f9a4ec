"""Variants of LLE: automatic k and ridge, outliers, labels, other neighbor graphs, points added later.

May import the files of `methods`, `spectral` and what `methods` may import. Start with `rewired_lle`, which has the
methods that choose neighbors by other distances.
"""
