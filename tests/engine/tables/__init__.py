"""Tests of `glle_engine.tables`."""
