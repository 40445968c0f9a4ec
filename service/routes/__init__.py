"""Routes of the API, one file for each resource.

May import `submission`, `responses`, `uploads`, `encoding` and `schemas`. Start with `params` and `posteriors`.
"""
