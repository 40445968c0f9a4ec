"""Spread of draws and half-samples against the sampling spread of LLE (`python -m docs.figures.honesty`)."""
