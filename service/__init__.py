"""The HTTP service: wire formats, routes, problems, and the `glle` command."""
