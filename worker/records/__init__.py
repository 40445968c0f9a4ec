"""Value types that are stored: ids, tenants, labels, jobs, data sets, draws.

May import `base`. Start with `job`.
"""
