"""Compute embeddings: the bottom eigenvectors of M = (I - W)^T (I - W) for sparse weights W, without forming M.

May import `base`, `linalg`, `graph` and `weights`. Start with `eigenproblem`; `batched` solves several draws at once.
"""
