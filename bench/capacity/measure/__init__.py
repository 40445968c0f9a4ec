"""Measurements of the costs that the capacity model is fitted to."""
