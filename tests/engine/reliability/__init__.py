"""Tests of `glle_engine.reliability`."""
