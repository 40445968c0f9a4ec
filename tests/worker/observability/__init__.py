"""Tests of `worker.observability`."""
