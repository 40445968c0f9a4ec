"""Tests of `worker.operations`."""
