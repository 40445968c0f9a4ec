"""Tests of `glle_engine.methods.lle_variants`."""
