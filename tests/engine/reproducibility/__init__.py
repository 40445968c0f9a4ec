"""Tests of `glle_engine.reproducibility`."""
