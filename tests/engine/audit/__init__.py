"""Tests of `glle_engine.audit`."""
