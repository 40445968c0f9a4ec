"""Tests of `worker.execution`."""
