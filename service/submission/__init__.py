"""Submission of work: dependencies of routes, checks before a job is queued, idempotency, cost limits.

May import `middleware`, `encoding` and `schemas`. Start with `dependencies`.
"""
