"""Tests of `service.middleware`."""
