"""Tests of `worker.analyses`."""
