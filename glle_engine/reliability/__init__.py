"""Measure how an embedding varies over samples of the data: embeddings of random halves, their spread, and regions.

May import every package of the engine but `estimator`. Start with `resamples`, whose `Embedder` embeds halves by a
posterior, a function or a method (`refits`). `alignment` measures the spread of aligned embeddings, and `calibration`
finds the scale at which draws of a posterior spread as embeddings of halves do.
"""
