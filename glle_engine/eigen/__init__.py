"""Bottom eigenvectors of M = (I - W)^T (I - W), without forming M.

May import `base`, `linalg`, `graph` and `weights`. Start with `eigenproblem`; `batched` solves several draws at once.
"""
