"""Tests of `glle_engine.methods.entropy`."""
