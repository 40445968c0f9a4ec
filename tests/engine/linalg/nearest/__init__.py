"""Tests of `glle_engine.linalg`."""
