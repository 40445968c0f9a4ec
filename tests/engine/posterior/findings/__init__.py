"""Tests of `glle_engine.posterior`."""
