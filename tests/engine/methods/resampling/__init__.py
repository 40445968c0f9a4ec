"""Tests of `glle_engine.methods.resampling`."""
