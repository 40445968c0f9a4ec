"""Value types of stored records: ids, tenants, labels, jobs, data sets, draws, cache entries.

May import `base`. Start with `job`.
"""
