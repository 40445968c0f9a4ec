"""Tests of `glle_engine.eigen`."""
