"""Value types of stored records: ids, tenants, quotas, jobs, data sets, draws, cache entries.

May import `base`. Start with `job`.
"""
