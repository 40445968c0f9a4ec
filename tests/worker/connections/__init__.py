"""Tests of `worker.connections`."""
