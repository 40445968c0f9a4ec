"""Tests of `glle_engine.methods.linear`."""
