"""Tests of `service.routes`."""
