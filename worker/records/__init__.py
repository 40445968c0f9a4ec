"""Types of what is stored (jobs, data sets, draws, entries of arrays), ids, and the rules of quotas and shares.

May import `base`. Start with `job`.
"""
