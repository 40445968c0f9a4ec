"""Measure how an embedding varies over samples of the data: halves of the data, aligned embeddings, spread, regions.

May import every package of the engine but `estimator`. Start with `resamples`: what can be embedded again is an
`Embedder`: a posterior, a function, or a method (`refits`). `alignment` measures aligned resamples, and `calibration`
finds the scale at which draws of a posterior spread as halves of the data do.
"""
