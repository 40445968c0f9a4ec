"""Quotas of tenants.

May import `base` and `records`. Start with `quotas`.
"""
