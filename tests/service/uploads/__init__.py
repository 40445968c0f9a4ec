"""Tests of `service.uploads`."""
