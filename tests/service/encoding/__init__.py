"""Tests of `service.encoding`."""
