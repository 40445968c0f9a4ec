"""Tests of `worker.records`."""
