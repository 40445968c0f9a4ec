"""Tests of `worker.tenancy`."""
