"""Tests of `glle_engine.weights`."""
