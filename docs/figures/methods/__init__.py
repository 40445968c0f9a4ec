"""Comparison of all methods on the same data: tables and pictures of docs/methods.md (`make methods`), and costs."""
