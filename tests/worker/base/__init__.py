"""Tests of `worker.base`."""
