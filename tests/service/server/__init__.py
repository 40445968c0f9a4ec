"""Tests of `service.server`."""
