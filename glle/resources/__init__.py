"""Objects of the service: data sets, posteriors, jobs, results, and the operations on methods.

May import `glle.transport`, `glle.inputs` and `glle.types`. Start with `posteriors`.
"""
