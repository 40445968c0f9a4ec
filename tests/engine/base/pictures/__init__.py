"""Tests of `glle_engine.base.pictures`."""
