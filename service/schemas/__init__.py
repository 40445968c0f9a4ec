"""JSON of the API: request and response models, problems, and the OpenAPI with its documentation page.

Imports no other package of `service`. Start with `resources`; `problems` defines every error response.
"""
