"""JSON of the API: request and response models, one file per resource, and the OpenAPI made of them.

Imports no other package of `service`. Start with `resources`; `problems` defines every error response.
"""
