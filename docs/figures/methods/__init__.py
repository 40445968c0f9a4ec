"""Every method on the same data with the same scores: the tables and pictures of docs/methods.md (`make methods`)."""
