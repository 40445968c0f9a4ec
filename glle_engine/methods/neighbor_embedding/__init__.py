"""Neighbor embeddings by affinities: SNE, symmetric SNE, t-SNE, elastic embedding.

May import the files of `methods`, `linear` and what `methods` may import. Start with `affinities`.
"""
