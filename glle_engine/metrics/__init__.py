"""Score embeddings: by ranks of neighbors, distances, geodesic distances, likelihood, labels, or true coordinates.

May import `base`, `linalg` and `graph`. Start with `registry`, which lists all scores by name.
"""
