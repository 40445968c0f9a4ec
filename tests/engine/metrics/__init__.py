"""Tests of `glle_engine.metrics`."""
