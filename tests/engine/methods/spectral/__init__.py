"""Tests of `glle_engine.methods.spectral`."""
