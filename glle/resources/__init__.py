"""Resources of the service as objects: data sets, posteriors, jobs, results, methods.

May import `transport`. Start with `posteriors`.
"""
