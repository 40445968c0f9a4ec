"""Measure how an embedding would vary over new samples of the data, by embedding random halves of the data again.

May import every package of the engine but `estimator`. Start with `resamples`, which embeds halves by the method of a
posterior or by a function; `refits` embeds them by any other method. `alignment` measures the spread of aligned
embeddings, and `calibration` finds the scale at which draws of a posterior spread as embeddings of halves do.
"""
