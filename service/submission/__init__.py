"""Submission of work: checks before a job is queued, job creation and waiting, cost limits.

May import `middleware`, `encoding` and `schemas`. Start with `jobs`.
"""
