"""Tests of `service.submission`."""
