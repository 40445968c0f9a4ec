"""Limits and keys of a tenant: quotas and bearer keys.

May import `base` and `records`. Start with `api_keys`.
"""
