"""HTTP service: routes, schemas, middleware, uploads, the explorer, and the `glle` command."""
