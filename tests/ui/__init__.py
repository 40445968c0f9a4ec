"""The explorer in a real browser: `make test-ui`."""
