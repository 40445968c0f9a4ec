"""The compiled search for nearest neighbors, and the choice of landmarks, which are points that cover the data.

May import the other files of `linalg` except `distances`. Start with `leaves`, whose loops are in `tile_kernels`. Other
packages call the search by `glle_engine.linalg.distances` and `glle_engine.graph.neighbors`.
"""
