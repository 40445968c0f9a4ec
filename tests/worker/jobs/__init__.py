"""Tests of `worker.jobs`."""
