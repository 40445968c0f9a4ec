"""Log lines, the context of requests, live workers, and the counters of a deployment.

May import `base` and `records`. Start with `logging`.
"""
