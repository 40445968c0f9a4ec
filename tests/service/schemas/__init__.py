"""Tests of `service.schemas`."""
