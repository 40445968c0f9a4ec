"""Tests of `service.responses`."""
