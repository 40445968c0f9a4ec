"""Comparison of all methods on the same data, for docs/reference/methods.md."""
