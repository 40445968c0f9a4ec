"""Quotas and bearer keys of tenants.

May import `base` and `records`. Start with `api_keys`.
"""
