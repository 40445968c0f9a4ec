"""How far an embedding holds: resamples, spread, regions, movement, and a word on how far to rely on them.

May import every package of the engine but `estimator`. Start with `resamples`: what can be embedded again is an
`Embedder`: a posterior, a function, or a method (`refits`). `alignment` has the figures of aligned resamples,
from which `ensemble` makes the spread of a posterior, and `movement` the spread of any method.
"""
