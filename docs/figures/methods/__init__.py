"""Tables and figures of docs/reference/methods.md: every method, same data, same scores (`make methods`)."""
