"""Objects of the service: data sets, posteriors, jobs, results, and the operations on methods.

May import `glle.transport`, `glle.inputs`, `glle.options` and `glle.types`. Start with `posteriors`.
"""
