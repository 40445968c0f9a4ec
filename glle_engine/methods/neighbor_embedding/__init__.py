"""Neighbor embeddings: SNE, symmetric SNE, elastic embedding, t-SNE, UMAP, densMAP and PaCMAP.

May import the files of `methods`, `linear` and what `methods` may import. Start with `affinities`.
"""
