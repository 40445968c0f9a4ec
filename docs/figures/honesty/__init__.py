"""Ensemble spread against the sampling spread of LLE, and its stated reliability (`python -m docs.figures.honesty`)."""
