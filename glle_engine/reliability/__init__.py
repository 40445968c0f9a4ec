"""Measure how far to rely on an embedding: resamples, spread, regions, movement, and a level of reliability.

May import every package of the engine but `estimator`. Start with `resamples`: what can be embedded again is an
`Embedder`: a posterior, a function, or a method (`refits`). `alignment` measures aligned resamples,
from which `ensemble` makes the spread of a posterior, and `movement` the spread of any method.
"""
