"""Tests of `glle_engine.graph`."""
