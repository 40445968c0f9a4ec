"""Linear and kernel methods: PCA, probabilistic PCA, factor analysis, classical MDS, kernel PCA, NPE.

May import the files of `methods`, `spectral` and what `methods` may import. Start with `pca`.
"""
