"""Tests of `service.cli`."""
