"""Spectral methods on neighbor graphs: LLE and its relatives, Isomap, Laplacian eigenmaps, diffusion maps.

May import the files of `methods` and what `methods` may import. Start with `lle`.
"""
