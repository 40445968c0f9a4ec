"""Tests of `worker.storage`."""
