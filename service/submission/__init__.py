"""What happens before and after a job is queued: checks, creation of the job, waiting for its end, lists of records.

May import `middleware`, `encoding` and `schemas`. Start with `jobs`.
"""
