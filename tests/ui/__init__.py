"""Tests of the explorer in a real browser: `make test-ui`."""
