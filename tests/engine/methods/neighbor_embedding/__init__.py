"""Tests of `glle_engine.methods.neighbor_embedding`."""
