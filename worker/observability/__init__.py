"""Log lines, traces, the request's context and the counters of a deployment.

May import `base` and `records`. Start with `logging`.
"""
