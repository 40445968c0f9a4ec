"""Compiled loops of the nearest-neighbor search: distances in a fixed order, and tiles of products that bound them.

`landmarks` chooses points that cover the data. Start with `tile_kernels`. Callers use `glle_engine.linalg.distances`
and `glle_engine.graph.neighbors`.
"""
