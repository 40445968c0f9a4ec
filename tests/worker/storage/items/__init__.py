"""Tests of `worker.storage.items`."""
